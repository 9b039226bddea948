"""Stores of one element for each block of an axis, where all of a block is the same."""

from __future__ import annotations

from wsdsl.ir.op import Value
from wsdsl.ir.tile_ops import Store
from wsdsl.ir.types import Fragment
from wsdsl.lowering.axis_blocks import is_even, stored_blocks
from wsdsl.lowering.builder import INT
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.register_tiles import RegisterTile, Shape


def even_blocks(
    op: Store, context: PartitionContext, shape: Shape, value: RegisterTile
) -> tuple[str, int] | None:
    """The axis of the columns and the size of blocks, if a store keeps one element of each block,
    which has the same value all over, and is as wide as chunks at the least.
    """
    made = context.kernel.definers
    for axis, size in stored_blocks(op, made).items():
        fits = axis == shape.columns and max(shape.widths) <= size and axis not in context.shares
        if fits and is_even(op.value, axis, size, made):
            kinds = {value.get(*place).type for place in shape.places()}
            if all(not isinstance(kind, Fragment) or kind.columns == 1 for kind in kinds):
                return axis, size
    return None


def block_place(axis: str, size: int, context: PartitionContext, piece: tuple[int, int]) -> Value:
    """The index of the block that begins with a piece; -1 if that begins beyond the end."""
    b, column = context.builder, context.shapes.of((axis,)).first_column(piece[1])
    place = b.plus(b.quotient(context.tiles[axis].start, size), column // size, "block")
    if context.is_full(axis):
        return place
    inside = b.map("lt", context.start(axis, *piece), context.stop(axis), wish="inside")
    return b.map("where", inside, place, b.integer(-1), type=INT, wish="place")
