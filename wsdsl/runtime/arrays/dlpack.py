"""Reading DLPack capsules, for arrays that speak nothing else. Layout: DLManagedTensor."""

import ctypes
from typing import Any

from wsdsl.diagnostics import LaunchError
from wsdsl.ir.types import DType
from wsdsl.runtime.arrays.views import FRAMEWORK_NAMES, ArrayView, contiguous_strides, dtype_named

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
LEGACY_STREAM = 1
"""CUDA's legacy default stream as the argument `stream` of __dlpack__."""

_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}
_FLOATS = {10: "float8_e4m3fn", 12: "float8_e5m2", 14: "float8_e8m0fnu", 17: "float4_e2m1fn"}


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


def device_of(array: Any) -> str:
    kind, index = array.__dlpack_device__()
    if int(kind) in (CUDA, CUDA_MANAGED):
        return f"cuda:{int(index)}"
    if int(kind) in (CPU, CUDA_HOST):
        return "cpu"
    hint = "copy it to a CUDA device or to the host"
    raise LaunchError(f"WS0733 the array is on DLPack device type {int(kind)}", hint=hint)


def describe(array: Any) -> ArrayView:
    """The view of a DLPack producer; its work so far is ordered before the legacy stream."""
    device = device_of(array)
    capsule = array.__dlpack__(stream=LEGACY_STREAM) if device != "cpu" else array.__dlpack__()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = get(capsule, b"dltensor")
    assert address is not None  # PyCapsule_GetPointer raises instead
    tensor = _Tensor.from_address(address)
    code, bits = tensor.dtype.code, tensor.dtype.bits
    kind = _KINDS.get(code)
    name = _FLOATS.get(code) or ("bool" if kind == "bool" else f"{kind or f'type{code}_'}{bits}")
    if tensor.dtype.lanes != 1:
        name += f"_x{tensor.dtype.lanes}"
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else contiguous_strides(shape)
    held = array, capsule  # An unconsumed capsule frees its tensor when it dies.
    found = (tensor.data or 0) + tensor.byte_offset, dtype_named(name, bits // 8), shape, strides
    framework = "tvm_ffi.Tensor" if type(array).__module__ == "tvm_ffi.core" else "dlpack"
    return ArrayView(*found, device, framework=framework, keepalive=held)


def types_of(dtype: DType) -> tuple[int, ...]:
    """Types of arrays that parameters of `dtype` take: code, bits, lanes from the lowest byte."""
    if dtype.bits == 4:
        return (0x10801, 0x10800, 0x20411)[: 3 if dtype.is_float else 2]  # u8, i8, float4 pairs
    name, codes = FRAMEWORK_NAMES[dtype.name], {n: code for code, n in (_KINDS | _FLOATS).items()}
    code = codes.get(name, codes.get(name.rstrip("0123456789"), 1))  # of 6 bits: u8
    return (code + (8 * dtype.bytes << 8) + (1 << 16),)
