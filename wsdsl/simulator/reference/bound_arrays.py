"""The arrays of a call bound to a kernel's parameters: dtypes, sizes of dimensions, 4-bit packing.

A 4-bit tensor is given packed: a uint8 array whose last dimension holds two elements a byte, low
nibble first. An ml_dtypes array of int4, uint4 or float4_e2m1fn, one element a byte, is taken as
well. Floats of 6 bits are ml_dtypes', or bytes whose upper two bits do not count.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wsdsl.diagnostics import Finding, LaunchError
from wsdsl.ir.analysis.tensor_accesses import written_tensors
from wsdsl.ir.hardware.swizzle import PACKED_LINES
from wsdsl.ir.op import Kernel
from wsdsl.ir.types import DTYPES, DType, Tensor, Tile
from wsdsl.record import record
from wsdsl.simulator.reference.arithmetic import (
    SMALL_MASK,
    Array,
    convert,
    numpy_dtype,
    round_total,
)


@record
class GlobalTensor:
    """A tensor in global memory; `array` has one element per element. `fragments`: it is accessed
    in whole blocks of 64 x 8, and where they lie is of no concern here.
    """

    name: str
    dtype: DType
    array: Array
    fragments: bool = False

    def add(self, at: tuple[Array, ...], value: Array) -> None:
        """Add to elements; duplicates in `at` are added up and rounded once."""
        if not value.size:
            return
        wide = np.float64 if self.dtype.is_float else np.int64
        places, back = np.unique(np.ravel_multi_index(at, self.array.shape), return_inverse=True)
        total = np.full(places.shape, -0.0, wide)
        np.add.at(total, back, value.astype(wide))
        there = np.unravel_index(places, self.array.shape)
        self.array[there] = round_total(total + self.array[there].astype(wide), self.dtype)


@record
class Arguments:
    """Everything that a launch gives a kernel."""

    tensors: dict[str, GlobalTensor]
    scalars: dict[str, Any]
    sizes: dict[str, int]
    copied: dict[str, Array]
    """The caller's arrays of tensors that are written and held in another form."""

    def size(self, dim: str | int) -> int:
        if isinstance(dim, int) or dim.isdigit():
            return int(dim)
        if dim not in self.sizes:
            raise LaunchError(f"WS0906 no array has the dimension {dim}", hint="pass one")
        return self.sizes[dim]

    def write_back(self) -> None:
        """Copy results into the caller's arrays where these have another form."""
        for name, target in self.copied.items():
            tensor = self.tensors[name]
            if tensor.dtype.bits == 4 and _is_bytes(target):
                pack_nibbles(tensor.array, target)
            else:
                target[...] = tensor.array.view(target.dtype)


def bind_arguments(kernel: Kernel, arrays: Mapping[str, Any]) -> Arguments:
    """Raises LaunchError with every array that does not fit."""
    sizes = dict(kernel.sizes)
    findings: list[Finding] = []
    tensors: dict[str, GlobalTensor] = {}
    scalars: dict[str, Any] = {}
    copied: dict[str, Array] = {}
    written = written_tensors(kernel)
    missing = [p.name for p in kernel.params if p.name not in arrays]
    unknown = sorted(set(arrays) - {p.name for p in kernel.params})
    if missing or unknown:
        faults = [f"needs {m}" for m in missing] + [f"has no parameter {u}" for u in unknown]
        hint = f"pass {', '.join(p.name for p in kernel.params)}"
        raise LaunchError([Finding(f"WS0907 {kernel.name} {t}", hint=hint) for t in faults])
    # Packed tensors last, so that an odd size is known from the tensors that show it.
    for p in sorted(kernel.params, key=lambda p: _is_packed(p.type, arrays[p.name])):
        value = arrays[p.name]
        if isinstance(p.type, Tile):
            scalars[p.name] = convert_scalar(value, p.type.dtype)
            continue
        assert isinstance(p.type, Tensor)
        array = _unpacked(value) if p.type.packed else np.asarray(value)
        shape = list(array.shape)
        is_packed = _is_packed(p.type, array)
        if len(shape) != len(p.type.dims):
            message = f"WS0908 {p.name} has {len(shape)} dimensions, unlike {p.type}"
            findings.append(Finding(message, hint="reshape the array"))
            continue
        if is_packed:
            shape[-1] *= 2
        for dim, size in zip(p.type.dims, shape, strict=True):
            expected = dim if isinstance(dim, int) else sizes.setdefault(dim, size)
            if is_packed and dim == p.type.dims[-1] and expected == size - 1:
                message = f"WS0909 {p.name}: dimension {dim} of {p.type.dtype} is odd: {expected}"
                findings.append(Finding(message, hint="pad the rows: two elements share a byte"))
            elif expected != size:
                message = f"WS0910 {p.name}: dimension {dim} is {size}, not {expected}"
                findings.append(Finding(message, hint="pass arrays of the same size along it"))
        kind, given = numpy_dtype(p.type.dtype), array
        if is_packed:
            array = unpack_nibbles(array, p.type.dtype, shape[-1])
        elif p.type.dtype.bits == 4:
            array = array.astype(kind)
        elif p.type.dtype.name in SMALL_MASK and array.dtype in (kind, np.uint8):
            array = (array.view(np.uint8) & np.uint8(SMALL_MASK[p.type.dtype.name])).view(kind)
        elif array.dtype != numpy_dtype(p.type.dtype):
            message = f"WS0911 {p.name} has {array.dtype} elements, not {kind}"
            findings.append(Finding(message, hint=f"convert it to {kind}"))
        if array is not given and not p.type.packed and p.name in written:
            copied[p.name] = given
        tensors[p.name] = GlobalTensor(p.name, p.type.dtype, array)
    if findings:
        raise LaunchError(findings)
    return Arguments(tensors, scalars, sizes, copied)


def _unpacked(value: Any) -> Array:
    """A packed tensor's elements, in rows that begin where those of its memory may."""
    array = np.asarray(value)
    wide = *array.shape[:-1], -(-array.shape[-1] // PACKED_LINES) * PACKED_LINES
    rows = np.zeros(wide, array.dtype)[..., : array.shape[-1]]
    rows[...] = array
    return rows


def _is_packed(kind: Any, value: Any) -> bool:
    return isinstance(kind, Tensor) and kind.dtype.bits == 4 and _is_bytes(np.asarray(value))


def _is_bytes(array: Array) -> bool:
    return array.dtype.name in ("uint8", "int8")


def convert_scalar(value: Any, dtype: DType) -> Any:
    """A Python number rounded to a dtype; floats stay Python floats, integers ints."""
    source = DTYPES["f32"] if dtype.is_float else DTYPES["i32"]
    raw = (
        np.asarray(float(value), np.float32) if dtype.is_float else np.asarray(int(value), np.int64)
    )
    return convert(raw, source, dtype).item() if source != dtype else raw.item()


def unpack_nibbles(packed: Array, dtype: DType, size: int) -> Array:
    both = np.stack([packed.view(np.uint8) & 15, packed.view(np.uint8) >> 4], axis=-1)
    flat = both.reshape(*packed.shape[:-1], 2 * packed.shape[-1])[..., :size]
    if dtype.kind == "int":
        return ((flat ^ 8).astype(np.int8) - 8).astype(np.int8)
    return flat.view(numpy_dtype(dtype))


def inside_of(array: Array, index: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """Return which of the indices are those of elements."""
    inside = np.ones(shape, np.bool_)
    for i, size in zip(index, array.shape, strict=True):
        inside &= (i >= 0) & (i < size)
    return inside


def elements_of(raw: Array, dtype: DType) -> Array:
    """Of lines of bytes, as memory holds them."""
    if dtype.bits == 4:
        return unpack_nibbles(raw, dtype, 2 * raw.shape[-1])
    return raw.view(numpy_dtype(dtype))


def bytes_of(lines: Array, dtype: DType) -> Array:
    """Lines of elements, as memory holds them."""
    if dtype.bits == 4:
        raw = np.empty((*lines.shape[:-1], lines.shape[-1] // 2), np.uint8)
        pack_nibbles(lines, raw)
        return raw
    return lines.view(np.uint8)


def pack_nibbles(values: Array, target: Array) -> None:
    low = values.view(np.uint8) & 15
    target.view(np.uint8)[...] = low[..., 0::2] | (low[..., 1::2] << 4)
