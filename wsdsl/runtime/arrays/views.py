"""ArrayView: the runtime's description of an array of any framework; and its geometry."""

import math
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

from wsdsl.ir.hardware.packed_layout import packed_bytes
from wsdsl.ir.hardware.tma_box import TMA_ALIGN
from wsdsl.ir.types import DTYPES, DType
from wsdsl.record import record

SEARCH_LIMIT = 20_000
"""Steps after which two arrays whose address ranges cross are taken to overlap."""


@record
class ArrayView:
    """Memory of one array. Strides are in elements; `device` is "cuda:0", "cpu", …

    `dtype` may be one that wsdsl has no name for ("float64"); no parameter matches it.
    `keepalive` is the array itself.
    """

    pointer: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: str
    readonly: bool = False
    framework: str = ""
    keepalive: Any = field(default=None, repr=False, compare=False)
    packed: bool = False

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda:")

    @property
    def device_index(self) -> int:
        return int(self.device.partition(":")[2] or 0)

    @property
    def is_empty(self) -> bool:
        return 0 in self.shape


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    return tuple(math.prod(max(1, n) for n in shape[i + 1 :]) for i in range(len(shape)))


def normalise(view: ArrayView) -> ArrayView:
    """The view with strides that no access uses (size 1, or an empty array) made row-major."""
    if view.is_empty:
        return replace(view, strides=contiguous_strides(view.shape))
    strides = list(view.strides)
    for i in reversed(range(len(strides))):
        if view.shape[i] == 1:
            inner = range(i + 1, len(strides))
            strides[i] = max((abs(strides[j]) * view.shape[j] for j in inner), default=1)
    return view if tuple(strides) == view.strides else replace(view, strides=tuple(strides))


def adapt(view: ArrayView, dtype: DType) -> ArrayView:
    """The view as `dtype` where its own type is a mere container of those bits, else unchanged.

    CuPy and bare __cuda_array_interface__ lack bf16 and fp8: unsigned integers of equal width
    contain them. 4-bit types are packed in bytes, two per byte. tf32 is stored as f32. Only
    ml_dtypes has floats of 6 bits: bytes contain them.
    """
    held = view.dtype
    if dtype.name == "tf32" and held.name == "f32":
        return replace(view, dtype=dtype)
    if view.framework in ("cupy", "cuda array interface") and dtype.is_float and dtype.bits < 32:
        raw = held.kind == "uint" or held.name.startswith("V")
        return replace(view, dtype=dtype) if raw and held.bits == dtype.bits else view
    if dtype.name in OF_SIX_BITS and held.name == "u8":
        return replace(view, dtype=dtype)
    pairs = ("u8", "i8", *(["float4_e2m1fn_x2"] if dtype.is_float else []))
    if dtype.bits == 4 and held.name in pairs and view.shape:
        shape = (*view.shape[:-1], 2 * view.shape[-1])
        strides = (*(2 * s for s in view.strides[:-1]), view.strides[-1])
        return replace(view, dtype=dtype, shape=shape, strides=strides)
    return view


OF_ML_DTYPES = {
    "bf16": "bfloat16",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8e8m0": "float8_e8m0fnu",
    "f6e2m3": "float6_e2m3fn",
    "f6e3m2": "float6_e3m2fn",
}
"""Types that NumPy has from ml_dtypes."""
PACKED = dict.fromkeys((name for name, dtype in DTYPES.items() if dtype.bits == 4), "uint8")
FRAMEWORK_NAMES = {
    **{name: f"{dtype.kind}{dtype.bits}" for name, dtype in DTYPES.items()},
    **(OF_ML_DTYPES | PACKED | {"bool": "bool"}),
}
"""Names of dtypes in torch, NumPy (with ml_dtypes), CuPy and JAX, which agree. 4-bit types are
packed, two per byte. Only ml_dtypes has floats of 6 bits.
"""
OF_SIX_BITS = ("f6e2m3", "f6e3m2")

_DTYPE_OF_NAME = {
    name: DTYPES[ours]
    for ours, name in FRAMEWORK_NAMES.items()
    if ours != "tf32" and DTYPES[ours].bits >= 8
} | {"bool_": DTYPES["bool"]}


def dtype_named(name: str, itemsize: int) -> DType:
    """The DType for a framework's name; one with that very name where wsdsl has none."""
    known = _DTYPE_OF_NAME.get(name)
    return known if known is not None else DType(name, "other", 8 * itemsize)


def byte_range(view: ArrayView) -> tuple[int, int]:
    """First byte and one past the last that the elements touch."""
    if view.is_empty:
        return view.pointer, view.pointer
    if view.packed:
        return view.pointer, view.pointer + packed_bytes(view.shape, view.dtype)
    reach = [s * (n - 1) * view.dtype.bits // 8 for s, n in zip(view.strides, view.shape)]
    low = view.pointer + sum(r for r in reach if r < 0)
    high = view.pointer + sum(r for r in reach if r > 0) + view.dtype.bytes
    return low, high


def overlaps_itself(view: ArrayView) -> bool:
    """May two indices have the same address? Exact where each stride spans the axes within it."""
    axes = sorted((abs(s), n) for s, n in zip(view.strides, view.shape) if n > 1)
    if view.is_empty:
        return False
    span = 1
    for stride, size in axes:
        if stride < span:
            return True
        span += stride * (size - 1)
    return False


def overlap(a: ArrayView, b: ArrayView) -> bool:
    """Is there a byte that both touch? Exact, or True when that takes too long to find out."""
    (a_low, a_high), (b_low, b_high) = byte_range(a), byte_range(b)
    if a_high <= b_low or b_high <= a_low or a_low == a_high or b_low == b_high:
        return False
    # Find x with sum(stride * x) = b_low - a_low, in bits since 4-bit types are packed. Equal
    # strides of a and b share one term.
    terms: dict[int, list[int]] = {1: [-(b.dtype.bits - 1), a.dtype.bits - 1]}
    for view, sign in ((a, 1), (b, -1)):
        for stride, size in zip(view.strides, view.shape):
            if size > 1 and stride:
                term = terms.setdefault(abs(stride) * view.dtype.bits, [0, 0])
                term[sign > 0] += sign * (size - 1)
    ordered = sorted(((s, lo, hi) for s, (lo, hi) in terms.items()), reverse=True)
    return _reachable(ordered, 8 * (b_low - a_low))


def _reachable(terms: list[tuple[int, int, int]], target: int) -> bool:
    """Whether `target` = sum of stride * x, with lo <= x <= hi in each term; descending strides."""
    rest = [(0, 0)]
    for stride, low, high in reversed(terms):
        rest.append((rest[-1][0] + stride * low, rest[-1][1] + stride * high))
    rest.reverse()
    open_states = [(0, target)]
    steps = 0
    while open_states:
        position, wanted = open_states.pop()
        if position == len(terms):
            if wanted == 0:
                return True
            continue
        stride, low, high = terms[position]
        least, most = rest[position + 1]
        first = max(low, -((most - wanted) // stride))
        last = min(high, (wanted - least) // stride)
        steps += max(1, last - first + 1)
        if steps > SEARCH_LIMIT:
            return True
        open_states += [(position + 1, wanted - stride * x) for x in range(first, last + 1)]
    return False


# Limits of tensor maps.
TMA_MAX_STRIDE = 2**40
TMA_MAX_RANK = 5


def row_strides(view: ArrayView) -> list[tuple[int, int]]:
    """(axis, stride in bytes) of the axes but the last that have more than one element."""
    strides = normalise(view).strides
    outer = (axis for axis in range(len(view.shape) - 1) if view.shape[axis] > 1)
    return [(axis, strides[axis] * view.dtype.bits // 8) for axis in outer]


def tma_faults(view: ArrayView, *, written: bool = False) -> list[str]:
    """Why no tensor map can describe the array; empty where one can.

    A TMA store writes whole 16 bytes: it would overwrite the bytes between the end of a row and
    the next multiple of 16 (observed on an H200, undocumented). A stride of 0, as of a broadcast,
    is valid: such tensors are not written.
    """
    faults: list[str] = []
    if not 1 <= len(view.shape) <= TMA_MAX_RANK:
        faults.append(f"rank is {len(view.shape)}; TMA supports ranks 1 to {TMA_MAX_RANK}")
    if view.is_empty:
        return faults
    row = view.shape[-1] * view.dtype.bits // 8 if view.shape else 0
    if written and row % TMA_ALIGN:
        faults.append(f"rows are {row} bytes long; a TMA store writes multiples of 16 bytes")
    if view.pointer % TMA_ALIGN:
        faults.append(f"the address is {view.pointer:#x}; TMA needs a multiple of 16 bytes")
    for axis, stride in row_strides(view):
        if stride % TMA_ALIGN:
            faults.append(f"the stride of axis {axis} is {stride} bytes; TMA needs multiples of 16")
        elif not 0 <= stride < TMA_MAX_STRIDE:
            faults.append(f"the stride of axis {axis} is {stride} bytes; TMA needs 0 to 2^40 - 16")
    return faults
