"""Packed tensors of a call: arrays in the order of `ir/hardware/packed_layout.py`, packed in
advance.

To pack is to move elements, by operations of the module that made the array: one that is on a GPU
is packed there.
"""

import math
import sys
from dataclasses import dataclass, field, replace
from typing import Any

from wsdsl.diagnostics import LaunchError
from wsdsl.ir.hardware.packed_layout import num_blocks, packed_bytes, packed_swizzle
from wsdsl.ir.hardware.swizzle import PACKED_LINES
from wsdsl.ir.types import DTYPES, DType
from wsdsl.runtime.arrays.interop import describe, describers, look_of, lookers
from wsdsl.runtime.arrays.views import ArrayView, adapt, contiguous_strides

ORDER = {
    4: (0, 4, 5, 1, 3, 7, 6, 2, 8),
    8: (0, 4, 5, 1, 3, 7, 6, 8, 2),
    16: (0, 4, 5, 1, 3, 7, 6, 2, 8, 9),
}
"""By bits of an element: how the parts of `_cut` follow each other in memory."""


@dataclass(frozen=True, eq=False)
class Packed:
    """Packed array of `Kernel.pack`, which represents the array in calls.

    `data` (bytes, an array of the same framework) may be kept, and a `Packed` made of it again,
    with the array's `shape` and `dtype`, an element type of the language by name; then `unpack`
    gives bytes. LaunchError if `data` is not of that size.
    """

    data: Any = field(repr=False)
    shape: tuple[int, ...]
    dtype: str
    like: Any = field(default=None, repr=False)
    """The framework's dtype of the elements."""

    def __post_init__(self) -> None:
        kind = DTYPES.get(self.dtype)
        wanted = packed_bytes(self.shape, kind) if kind and packed_swizzle(kind) else -1
        if self.nbytes != wanted:
            kind = f"{self.dtype} of shape {self.shape}"
            message = f"WS0757 {self.nbytes} bytes are not a packed {kind}"
            raise LaunchError(message, hint="pack the array: kernel.pack(array)")

    @property
    def nbytes(self) -> int:
        view = describe(self.data)
        return math.prod(view.shape) * view.dtype.bytes

    def unpack(self) -> Any:
        """The array that was packed, bit for bit."""
        *outer, lines, last = self.shape
        kind = DTYPES[self.dtype]
        cut, order = _cut(self.shape, kind), _order(self.shape, kind)
        data = _without_nibbles(self.data) if kind.bits == 4 else self.data
        parts = data.reshape([cut[i] for i in order])
        parts = transposed(parts, [order.index(i) for i in range(len(order))])
        whole = parts.reshape([*outer, num_blocks(lines) * PACKED_LINES, -1])
        whole = contiguous(whole[..., :lines, : kind.size(last)])
        return whole if self.like is None else whole.view(self.like)


def pack(array: Any, dtype: DType) -> Packed:
    """An array of elements of 4, 8 or 16 bits, by its last two axes; of any strides. Of 4 bits it
    has two elements to a byte.
    """
    array = array.detach() if hasattr(array, "detach") else array
    view = adapt(describe(array), dtype)
    if view.dtype != dtype:
        hint = "give a uint8 array, two elements per byte" if dtype.bits == 4 else ""
        raise LaunchError(f"WS0758 pack() has a {view.dtype} array, expected {dtype}", hint=hint)
    *_, lines, last = view.shape
    if view.is_empty:
        raise LaunchError(f"WS0759 an array of shape {view.shape} has no elements to pack")
    raw = contiguous(array).view(bytes_of(array))
    over = [(0, num_blocks(lines) * PACKED_LINES - lines)]
    over.append((0, dtype.size(num_blocks(last) * PACKED_LINES - last)))
    raw = with_zeros(raw, over).reshape(_cut(view.shape, dtype))
    data = contiguous(transposed(raw, _order(view.shape, dtype))).reshape(-1)
    data = _with_nibbles(data) if dtype.bits == 4 else data
    return Packed(data, view.shape, dtype.name, array.dtype)


def packed_view(array: Packed) -> ArrayView:
    """Of whole blocks, whose rows begin where TMA asks for it."""
    view, dtype = describe(array.data), DTYPES[array.dtype]
    strides = packed_strides(array.shape)
    return replace(view, dtype=dtype, shape=array.shape, strides=strides, packed=True)


def packed_look(array: Packed) -> tuple[Any, int]:
    """As `look_of` says."""
    look, address = look_of(array.data)
    return (look, array.shape, array.dtype), address


def packed_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """As if rows were as long as their blocks, and as many as are in these."""
    whole = (PACKED_LINES * num_blocks(n) for n in shape[-2:])
    return contiguous_strides((*shape[:-2], *whole))


def _cut(shape: tuple[int, ...], dtype: DType) -> list[int]:
    """Blocks, warps, halves of a warp's lines, lines of a half; blocks, vectors of a thread,
    columns by 8 in a vector, adjacent threads, adjacent elements, bytes. A byte contains two
    adjacent 4-bit elements.
    """
    *outer, lines, last = shape
    low = {4: [1], 8: [2], 16: [2, 2]}[dtype.bits]
    across = [num_blocks(last), dtype.bits // 4, 32 // dtype.bits, 4, *low]
    return [*outer, num_blocks(lines), 4, 2, 8, *across]


def _order(shape: tuple[int, ...], dtype: DType) -> list[int]:
    outer = len(shape) - 2
    return [*range(outer), *(outer + i for i in ORDER[dtype.bits])]


def _with_nibbles(data: Any) -> Any:
    """Reorder the nibbles of every four bytes, which are adjacent pairs: the first of each pair go
    to the lower half of 32 bits, the second to the upper.
    """
    even, odd = data[0::2].reshape(-1, 2), data[1::2].reshape(-1, 2)
    first, second = (even & 15) | ((odd & 15) << 4), (even >> 4) | (odd & 0xF0)
    return module_of(data).stack([first, second], 1).reshape(-1)


def _without_nibbles(data: Any) -> Any:
    """The same back again."""
    words = data.reshape(-1, 2, 2)
    first, second = words[:, 0], words[:, 1]
    even, odd = (first & 15) | ((second & 15) << 4), (first >> 4) | (second & 0xF0)
    return module_of(data).stack([even, odd], 2).reshape(-1)


def module_of(array: Any) -> Any:
    """Where the functions for arrays like this one are."""
    root = type(array).__module__.partition(".")[0]
    return sys.modules["jax.numpy" if root in ("jax", "jaxlib") else root]


def bytes_of(array: Any) -> Any:
    return module_of(array).uint8


def contiguous(array: Any) -> Any:
    if hasattr(array, "contiguous"):
        return array.contiguous()
    module = module_of(array)
    return module.ascontiguousarray(array) if hasattr(module, "ascontiguousarray") else array


def transposed(array: Any, order: list[int]) -> Any:
    return array.permute(order) if hasattr(array, "permute") else array.transpose(order)


def with_zeros(array: Any, over: list[tuple[int, int]]) -> Any:
    """Longer along its last axes."""
    if not any(more for _, more in over):
        return array
    module = module_of(array)
    if hasattr(array, "permute"):
        return module.nn.functional.pad(array, [n for pair in reversed(over) for n in pair])
    return module.pad(array, [(0, 0)] * (len(array.shape) - len(over)) + over)


describers[Packed], lookers[Packed] = packed_view, packed_look
