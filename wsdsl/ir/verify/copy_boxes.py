"""Rules of SCHEDULED kernels about copies between SMEM and tensors, by TMA or by threads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from wsdsl.ir import ops
from wsdsl.ir.hardware.gmem_limits import ADDED_ATOMICALLY
from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN
from wsdsl.ir.hardware.tma_box import box_fault
from wsdsl.ir.hardware.wgmma_shapes import WIDTH_STEP
from wsdsl.ir.op import Kernel, Problem
from wsdsl.ir.ops import PrefetchTile, WarpBox
from wsdsl.ir.types import DType, Shared, Tensor


def boxes_fit(kernel: Kernel) -> Iterator[Problem]:
    for op in kernel.of(ops.MakeTensorMap, ops.ThreadStore):
        tensor = op.tensor.as_tensor
        if fault := box_fault(op.box, len(tensor.dims), tensor.dtype, op.swizzle):
            yield op, fault
        elif isinstance(op, ops.ThreadStore) and sum(extent > 1 for extent in op.box[:-1]) > 1:
            yield op, "the rows of a panel must run along one dimension"


def halves_of_bytes_are_only_loaded(kernel: Kernel) -> Iterator[Problem]:
    """A copy of what is packed two to a byte is one of bytes; TMA loads are."""
    made = kernel.definers
    for op in kernel.of(ops.ThreadLoad, ops.ThreadStore, PrefetchTile, ops.TmaStore):
        named = made.get(op.map) if isinstance(op, ops.TmaStore) else op
        kind = getattr(getattr(named, "tensor", None), "type", None)
        if isinstance(kind, Tensor) and kind.dtype.bits < 8:
            yield op, f"{kind.dtype} has two elements per byte, which only tma_load can copy"


def _stores(
    kernel: Kernel,
) -> Iterator[tuple[ops.TmaStore | ops.ThreadStore, ops.MakeTensorMap | ops.ThreadStore, Tensor]]:
    """Each with what names the boxes, and their tensor."""
    made = kernel.definers
    for op in kernel.of(ops.TmaStore, ops.ThreadStore):
        named = made.get(op.map) if isinstance(op, ops.TmaStore) else op
        if isinstance(named, (ops.MakeTensorMap, ops.ThreadStore)):
            yield op, named, named.tensor.as_tensor


def lines_are_filled(kernel: Kernel) -> Iterator[Problem]:
    """Those of the panels that threads load."""
    for op in kernel.of(ops.ThreadLoad):
        row, span = op.tensor.as_tensor.dtype.size(op.columns), SWIZZLE_SPAN[op.swizzle]
        if row % span:
            yield op, f"rows of {row} bytes are not a multiple of the swizzle span, {span}"


def additions_exist(kernel: Kernel) -> Iterator[Problem]:
    for op, _, tensor in _stores(kernel):
        if op.accumulate and tensor.dtype.name not in ADDED_ATOMICALLY:
            yield op, f"memory cannot add {tensor.dtype} elements"


def joined_panels_are_transposed(kernel: Kernel) -> Iterator[Problem]:
    """A warp writes 32 bytes of each of their lines."""
    for op in kernel.of(ops.StoreShared):
        right = op.transposed and op.swizzle == "128B" and op.value.as_fragment.dtype.bits == 16
        if op.joined and not right:
            yield op, 'joined panels need transposed=True, 16-bit elements and swizzle="128B"'


def reach_of_boxes(
    op: ops.TmaStore | ops.ThreadStore, box: Sequence[int], dtype: DType
) -> tuple[list[int], int]:
    """Elements that all warps together copy along each dimension, and one warp along `row_dim`."""
    sides = [size * 4 if dim == op.row_dim else size for dim, size in enumerate(box)]
    if isinstance(op, ops.ThreadStore) or not op.lines:
        return sides, box[op.row_dim]
    sides[op.line_dim] = op.lines
    each = op.part_bytes // dtype.size(math.prod(box)) if op.row_dim == op.line_dim else 1
    return sides, each * box[op.row_dim]


def place_of_box(
    op: ops.TmaStore | ops.ThreadStore, held: WarpBox, box: tuple[int, ...], at: Sequence[int]
) -> tuple[int, ...]:
    """Where it goes in the tensor, if the op's coordinates are `at`."""
    place = list(at)
    line_dim = op.line_dim if isinstance(op, ops.TmaStore) and op.lines else None
    if op.row_dim != line_dim:
        place[op.row_dim] += held.warp * box[op.row_dim]
    if line_dim is not None:
        place[line_dim] += held.line
    return tuple(place)


def boxes_lie_in_their_item(kernel: Kernel) -> Iterator[Problem]:
    """Of each warp, one behind the other in SMEM as in the tensor."""
    for op, named, tensor in _stores(kernel):
        if not 0 <= op.row_dim < len(named.box):
            yield op, f"row_dim={op.row_dim} is not one of {len(named.box)} dimensions"
            continue
        size = tensor.dtype.size(math.prod(named.box))
        if isinstance(op, ops.TmaStore) and (told := _lines_fault(op, named.box)):
            yield op, told
            continue
        item, boxes = op.shared.type_as(Shared).bytes, [*op.boxes(size)]
        apart, own = op.part_bytes, sum(size for held in boxes if not held.warp)
        if apart < own or boxes[-1].bytes.stop > item:
            yield op, f"4 boxes of {size} bytes, {apart} apart, exceed an item of {item} bytes"
        if op.apart % (8 * SWIZZLE_SPAN[named.swizzle]):
            yield op, f"a panel must start at a multiple of {8 * SWIZZLE_SPAN[named.swizzle]} bytes"


def _lines_fault(op: ops.TmaStore, box: tuple[int, ...]) -> str:
    if not op.lines:
        return ""
    if not 0 <= op.line_dim < len(box) - 1 or box[op.line_dim] != WIDTH_STEP:
        return f"a copy by rows needs boxes of {WIDTH_STEP} rows along `line_dim`"
    return f"lines={op.lines} is not a multiple of {WIDTH_STEP}" if op.lines % WIDTH_STEP else ""
