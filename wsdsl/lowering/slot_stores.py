"""What threads write to slots: fragments, as the panels that TMA would fill."""

from __future__ import annotations

from collections.abc import Mapping

from wsdsl.ir.memory_ops import StoreShared
from wsdsl.ir.op import Op, Value
from wsdsl.ir.slot_ops import StoreInShared
from wsdsl.ir.swizzle import SWIZZLE_SPAN
from wsdsl.ir.types import DType
from wsdsl.lowering.elementwise import with_zeros_outside
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.register_tiles import RegisterTile, joined


def write_tile(
    op: StoreInShared, pieces: RegisterTile, made: Mapping[Value, Op], context: PartitionContext
) -> None:
    """With zeros where it is summed over elements that there are not."""
    kind, axis = op.value.as_tile, op.summed.as_axis
    pieces = with_zeros_outside(op.value, pieces, context, made, axis.name)
    _write_panels(op, pieces, kind.dtype, context)


def _write_panels(
    op: StoreInShared, pieces: RegisterTile, dtype: DType, context: PartitionContext
) -> None:
    """Row block by row block, as many pieces at a time as fill lines."""
    b, shape, span = context.builder, pieces.shape, SWIZZLE_SPAN[op.swizzle]
    assert shape.rows is not None
    rows = context.axes[shape.rows].size
    last = len(shape.widths) - 1
    for i in range(shape.blocks):
        parts, first = list[Value](), 0
        for j in range(len(shape.widths)):
            if not parts:
                first = shape.first_column(j)
            parts.append(pieces.get(i, j))
            if j < last and (shape.first_column(j + 1) - first) * dtype.bytes % span:
                continue
            b.add(
                StoreShared(
                    value=joined(b, parts, "line"),
                    shared=op.shared,
                    state=op.state,
                    offset=op.offset + first * dtype.bytes // span * rows * span,
                    start=context.row_in_tile(shape.rows, i),
                    rows=rows,
                    swizzle=op.swizzle,
                    loc=op.loc,
                )
            )
            parts = []
