"""Rules of SCHEDULED kernels about copies between SMEM and tensors, by TMA or by threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from wsdsl.ir.global_memory import ADDED_ATOMICALLY
from wsdsl.ir.memory_ops import (
    MakeTensorMap,
    PrefetchTile,
    StoreShared,
    ThreadLoad,
    ThreadStore,
    TmaStore,
)
from wsdsl.ir.op import Kernel
from wsdsl.ir.protocol_rules import Problem
from wsdsl.ir.swizzle import SWIZZLE_SPAN
from wsdsl.ir.tensor_box import box_fault
from wsdsl.ir.types import Fragment, Shared, Tensor


def boxes_fit(kernel: Kernel) -> Iterator[Problem]:
    for op in kernel.ops:
        if isinstance(op, (MakeTensorMap, ThreadStore)) and isinstance(op.tensor.type, Tensor):
            dims, dtype = op.tensor.type.dims, op.tensor.type.dtype
            if fault := box_fault(op.box, len(dims), dtype, op.swizzle):
                yield op, fault
            elif isinstance(op, ThreadStore) and sum(extent > 1 for extent in op.box[:-1]) > 1:
                yield op, "the lines of a panel follow each other along one dimension"


def lines_are_filled(kernel: Kernel) -> Iterator[Problem]:
    """Those of the panels that threads load."""
    for op in kernel.ops:
        if isinstance(op, ThreadLoad) and isinstance(op.tensor.type, Tensor):
            row, span = op.tensor.type.dtype.size(op.columns), SWIZZLE_SPAN[op.swizzle]
            if row % span:
                yield op, f"rows of {row} bytes do not fill lines of {span}"


def halves_of_bytes_are_only_loaded(kernel: Kernel) -> Iterator[Problem]:
    """A copy of what is packed two to a byte is one of bytes; TMA loads are."""
    made = kernel.definers
    for op in kernel.ops:
        named = made.get(op.map) if isinstance(op, TmaStore) else op
        if isinstance(op, (ThreadLoad, ThreadStore, PrefetchTile, TmaStore)):
            kind = getattr(getattr(named, "tensor", None), "type", None)
            if isinstance(kind, Tensor) and kind.dtype.bits < 8:
                yield op, f"{kind.dtype} has two elements to a byte, which only tma_load copies"


def _stores(
    kernel: Kernel,
) -> Iterator[tuple[TmaStore | ThreadStore, MakeTensorMap | ThreadStore, Tensor]]:
    """Each with what names the boxes, and their tensor."""
    made = kernel.definers
    for op in kernel.ops:
        if isinstance(op, (TmaStore, ThreadStore)):
            named = made.get(op.map) if isinstance(op, TmaStore) else op
            if isinstance(named, (MakeTensorMap, ThreadStore)):
                assert isinstance(named.tensor.type, Tensor)
                yield op, named, named.tensor.type


def additions_exist(kernel: Kernel) -> Iterator[Problem]:
    for op, _, tensor in _stores(kernel):
        if op.accumulate and tensor.dtype.name not in ADDED_ATOMICALLY:
            yield op, f"memory adds no {tensor.dtype} elements"


def joined_panels_are_transposed(kernel: Kernel) -> Iterator[Problem]:
    """A warp writes 32 bytes of each of their lines."""
    for op in kernel.ops:
        if isinstance(op, StoreShared) and op.joined:
            assert isinstance(op.value.type, Fragment)
            if not op.transposed or op.swizzle != "128B" or op.value.type.dtype.bits != 16:
                yield op, 'joined panels are transposed, of 16-bit elements and swizzle="128B"'


def boxes_of_warps(op: TmaStore | ThreadStore, size: int) -> list[range]:
    """The bytes of the item that each of the four warps copies, `size` of them."""
    assert isinstance(op.shared.type, Shared)
    apart = op.apart or op.shared.type.bytes // 4
    return [range(start, start + size) for start in (0, apart, 2 * apart, 3 * apart)]


def boxes_lie_in_their_item(kernel: Kernel) -> Iterator[Problem]:
    """Of each warp, one behind the other in SMEM as in the tensor."""
    for op, named, tensor in _stores(kernel):
        assert isinstance(op.shared.type, Shared)
        if not 0 <= op.row_dim < len(named.box):
            yield op, f"row_dim={op.row_dim} of a tensor of {len(named.box)} dimensions"
            continue
        size = tensor.dtype.size(math.prod(named.box))
        item, boxes = op.shared.type.bytes, boxes_of_warps(op, size)
        apart = boxes[1].start
        if apart < size or boxes[-1].stop > item:
            yield op, f"four boxes of {size} bytes, {apart} apart, are not in {item} bytes"
        if op.apart % (8 * SWIZZLE_SPAN[named.swizzle]):
            yield op, f"a panel begins at a multiple of {8 * SWIZZLE_SPAN[named.swizzle]} bytes"


RULES: tuple[Callable[[Kernel], Iterator[Problem]], ...] = (
    boxes_fit,
    halves_of_bytes_are_only_loaded,
    lines_are_filled,
    additions_exist,
    joined_panels_are_transposed,
    boxes_lie_in_their_item,
)
