"""Reductions of rows: a thread's own first, piece by piece, and then what all threads have."""

from __future__ import annotations

import dataclasses

from wsdsl.ir.op import Value
from wsdsl.ir.pipeline_ops import FoldRows
from wsdsl.ir.tile_ops import Cast, Reduce
from wsdsl.ir.types import F32, DType
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.register_tiles import RegisterTile


def folded(op: FoldRows, context: PartitionContext, x: RegisterTile) -> RegisterTile:
    """Pieces are reduced element by element, to one. All of `x` takes part."""
    dtype = op.result.as_tile.dtype
    shape = context.shapes.of(op.result.as_tile.axes)
    return RegisterTile(shape, lambda i, j: _joined(op, context, x, dtype, j))


def reduced(op: Reduce, context: PartitionContext, x: RegisterTile) -> RegisterTile:
    """The same, and then what warps, and consumers that share rows, have of it."""
    b, dtype = context.builder, op.result.as_tile.dtype
    shape = context.shapes.of(op.result.as_tile.axes)
    work = F32 if op.fn == "add" and dtype.is_float else dtype

    def piece(i: int, j: int) -> Value:
        total = _joined(op, context, x, work, j)
        made = b.value(op.result.name, shape.piece(work, j))
        context.shared_rows.reduce_rows(op.fn, total, made, op.loc)
        if work == dtype:
            return made
        return b.add(Cast(result=b.value("sum", shape.piece(dtype, j)), x=made, loc=op.loc)).result

    return RegisterTile(shape, piece)


def _joined(
    op: Reduce | FoldRows, context: PartitionContext, x: RegisterTile, work: DType, j: int
) -> Value:
    """The rows of all pieces, as one piece: neighbours first, so that none waits for all."""
    b, left = context.builder, list[Value]()
    for i in range(x.shape.blocks):
        value = x.get(i, j)
        if value.as_fragment.dtype != work:
            kind = dataclasses.replace(value.as_fragment, dtype=work)
            value = b.add(Cast(result=b.value("wide", kind), x=value, loc=op.loc)).result
        left.append(value)
    while len(left) > 1:
        odd = left[len(left) & ~1 :]
        pairs = zip(left[::2], left[1::2], strict=False)
        left = [b.map(op.fn, one, other, wish="partial") for one, other in pairs] + odd
    return left[0]
