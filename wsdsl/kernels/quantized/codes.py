"""Codes of weights: their type, their storage, and the numbers that they represent."""

from typing import Any

import ml_dtypes
import numpy as np

from wsdsl.diagnostics import LaunchError
from wsdsl.ir.types import DTYPES
from wsdsl.kernels.gemm.matmul_dtypes import wrong_option
from wsdsl.kernels.host_arrays import OF_HOST, matrix_shape, on_host, placed_like, type_name
from wsdsl.runtime.arrays.packed import Packed, contiguous

WEIGHTS = ("i4", "u4", "f4e2m1", "i8", "u8", "f8e4m3", "f8e5m2")
NAMES = {
    "int4": "i4", "uint4": "u4", "int8": "i8", "uint8": "u8", "fp8": "f8e4m3",
    "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
    "float4_e2m1fn": "f4e2m1", "float4_e2m1fn_x2": "f4e2m1", "fp4": "f4e2m1",
    "uint4b8": "u4b8", "uint8b128": "u8b128",
}  # fmt: skip
"""Types of codes, by the frameworks' names."""
BIASED = {"u4b8": ("i4", 0x88), "u8b128": ("i8", 0x80)}
"""Unsigned codes less the half of their range: signed ones, with these bits of a byte the other way
round."""
WORDS = ("int32", "uint32")
"""Of several codes along K, as compressed-tensors and, transposed, GPTQ have them."""
OF_A_BYTE = ("int4", "uint4", "float4_e2m1fn")
"""Of ml_dtypes and JAX: 4 bits, an element to a byte."""


def type_of(codes: Any, given: Any) -> str:
    """Of WEIGHTS or BIASED; the array's own, if nothing is given."""
    if given is None:
        name = type_name(codes)
        if name == "uint8":
            hint = 'give dtype="i4", "u4" or "f4e2m1" (two codes per byte), or "u8" (one)'
            raise LaunchError("WS0829 codes are uint8: their type is ambiguous", hint=hint)
    else:
        own = getattr(given, "name", None) or getattr(given, "__name__", None) or given
        name = str(own).removeprefix("torch.")
    found = NAMES.get(name, name)
    if found not in (*WEIGHTS, *BIASED):
        raise wrong_option("the type of codes", name, ", ".join((*WEIGHTS, *BIASED)))
    return found


def as_codes(array: Any, name: str) -> tuple[Any, tuple[int, int]]:
    """Codes as the language has them, K + K % 2 to a row, and [N, K]."""
    kind, flipped = BIASED.get(name, (name, 0))
    dtype = DTYPES[kind]
    if isinstance(array, Packed):
        if array.dtype != kind or len(array.shape) != 2 or flipped:
            message = f"WS0830 codes are packed {array.dtype} of shape {array.shape}"
            raise LaunchError(message, hint=f"give {kind} of shape [N, K]")
        return array, (array.shape[0], array.shape[1])
    shape = matrix_shape("codes", array)
    own = type_name(array)
    if own in WORDS:
        array, own = placed_like(_bytes_of(array), array), "uint8"
        shape = matrix_shape("codes", array)
        if dtype.bits == 8 and not flipped:
            array = placed_like(on_host(array).view(OF_HOST[kind]), array)
            own = type_name(array)
    if own in OF_A_BYTE:
        held = np.asarray(array).view(np.uint8) & 15 ^ flipped & 15
        return placed_like(in_pairs(held), array), (shape[0], shape[1])
    containers = ["uint8", "int8", "float4_e2m1fn_x2"] if dtype.bits == 4 else []
    if flipped or kind == "u8":
        containers += ["uint8"]
    containers += [n for n, ours in NAMES.items() if ours == kind]
    if own not in containers and not (own == "uint8" and type(array).__module__ == "cupy"):
        form = "two codes per uint8" if dtype.bits == 4 else OF_HOST[kind].name
        hint = f"give {form}, or {32 // dtype.bits} codes per int32"
        raise LaunchError(f"WS0831 codes are {own}, expected {kind}", hint=hint)
    if flipped:
        array = placed_like((on_host(array) ^ flipped).view(OF_HOST[kind]), array)
    return contiguous(array), (shape[0], dtype.count(shape[1]))


def _bytes_of(words: Any) -> Any:
    """Along K; the first code of a word is in its lowest bits."""
    return np.ascontiguousarray(on_host(words)).view(np.uint8)


def in_pairs(codes: Any) -> Any:
    """[N, K] of 4 bits, one to a byte, two to a byte; behind an odd K stands 0."""
    even = np.pad(codes, ((0, 0), (0, codes.shape[1] % 2)))
    return even[:, ::2] | even[:, 1::2] << 4


def numbers(codes: Any, kind: str) -> Any:
    """Decode NumPy codes, or their bytes, to f32, exactly."""
    if DTYPES[kind].bits == 8:
        return codes.view(OF_HOST[kind]).astype(np.float32)
    raw = codes.view(np.uint8)
    whole = np.stack((raw & 15, raw >> 4), axis=2).reshape(len(raw), -1)
    return table(kind)[whole]


def table(kind: str) -> Any:
    """The 16 numbers of a type of 4 bits."""
    every = np.arange(16, dtype=np.uint8)
    match kind:
        case "i4":
            return ((every ^ 8).astype(np.float32)) - 8
        case "u4":
            return every.astype(np.float32)
        case _:
            return every.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
