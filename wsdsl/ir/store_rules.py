"""Rules of SCHEDULED kernels about stores through SMEM: what four warps write is copied."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from wsdsl.ir.memory_ops import MakeTensorMap, StoreShared, ThreadStore, TmaStore
from wsdsl.ir.op import Kernel
from wsdsl.ir.protocol_rules import Problem, box_fault
from wsdsl.ir.target import ADDED_ATOMICALLY, SWIZZLE_SPAN
from wsdsl.ir.types import Fragment, Shared, Tensor


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
    made = kernel.definers
    for op in kernel.ops:
        copied = op
        if isinstance(op, TmaStore):
            copied = made.get(op.map)
        if not isinstance(op, (TmaStore, ThreadStore)):
            continue
        if not isinstance(copied, (MakeTensorMap, ThreadStore)):
            continue
        assert isinstance(copied.tensor.type, Tensor) and isinstance(op.shared.type, Shared)
        if not 0 <= op.row_dim < len(copied.box):
            yield op, f"row_dim={op.row_dim} of a tensor of {len(copied.box)} dimensions"
            continue
        size = math.prod(copied.box) * copied.tensor.type.dtype.bytes
        item, boxes = op.shared.type.bytes, boxes_of_warps(op, size)
        apart = boxes[1].start
        if apart < size or boxes[-1].stop > item:
            yield op, f"four boxes of {size} bytes, {apart} apart, are not in {item} bytes"
        if op.apart % (8 * SWIZZLE_SPAN[copied.swizzle]):
            yield op, f"a panel begins at a multiple of {8 * SWIZZLE_SPAN[copied.swizzle]} bytes"


def threads_store_panels(kernel: Kernel) -> Iterator[Problem]:
    for op in kernel.ops:
        if not isinstance(op, ThreadStore) or not isinstance(op.tensor.type, Tensor):
            continue
        if fault := box_fault(op.box, op.tensor.type, op.swizzle):
            yield op, fault
        elif sum(extent > 1 for extent in op.box[:-1]) > 1:
            yield op, "the lines of a panel follow each other along one dimension"
        if op.accumulate and op.tensor.type.dtype.name not in ADDED_ATOMICALLY:
            yield op, f"memory adds no {op.tensor.type.dtype} elements"


RULES: tuple[Callable[[Kernel], Iterator[Problem]], ...] = (
    joined_panels_are_transposed,
    boxes_lie_in_their_item,
    threads_store_panels,
)
