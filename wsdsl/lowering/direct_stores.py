"""Stores of fragments as threads have them, element by element or by vectors."""

from collections.abc import Callable

from wsdsl.ir.op import Op, Value
from wsdsl.ir.ops import Store, StoreGlobal
from wsdsl.ir.types import I32, Axis, Fragment
from wsdsl.lowering.axis_blocks import block_of, is_even, stored_blocks
from wsdsl.lowering.builder import INT
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.reads import Find, entry_of, vector_of
from wsdsl.lowering.register_tiles import RegisterTile, Shape


def store_directly(
    context: PartitionContext,
    op: Store,
    find: Find,
    piece: tuple[int, int],
    value: Value,
    even: tuple[str, int] | None = None,
    counted: Callable[[StoreGlobal], Op] = lambda op: op,
) -> None:
    """`even`: the axis and the size of blocks, if the value is one column for each. `counted` gives
    what stands for a store.
    """
    b, made = context.builder, context.kernel.definers
    index = tuple(
        block_place(*even, context, piece)
        if even and block_of(v, made) == even
        else _place(v, context, op, find, piece)
        for v in op.index
    )
    kinds = [v.type for v in (*index, value) if isinstance(v.type, Fragment)]
    by_rows = context.shapes.share == "rows"
    split = any((kind.rows if by_rows else kind.columns) > 1 for kind in kinds)
    cut, pred = bool(_ends_along(op.index[-1], context, op)), None
    if not split and context.num_warpgroups > 1:
        pred = b.map("eq", context.warpgroup, b.integer(0), wish="first")
    if context.sharing and context.sharing.keys().isdisjoint(axis.name for axis in op.axes):
        first = b.map("eq", b.rank(), b.integer(0), wish="first")
        pred = first if pred is None else b.map("and", pred, first, wish="first")
    store = StoreGlobal(
        tensor=op.tensor,
        index=index,
        value=value,
        vector=1 if cut else vector_of(op.tensor, op.index, context),
        accumulate=op.accumulate,
        pred=pred,
        loc=op.loc,
    )
    b.add(counted(store))


def _ends_along(entry: Value, context: PartitionContext, op: Store) -> list[str]:
    """The axes whose ends no bound of the tensor tells."""
    if isinstance(entry.type, Axis):
        return [entry.type.name] if context.tiles[entry.type.name].is_clipped else []
    named = {v.type.name for v in op.index if isinstance(v.type, Axis)}
    return [n for n in entry.axes if n not in named and not context.is_full(n)]


def _place(
    entry: Value, context: PartitionContext, op: Store, find: Find, piece: tuple[int, int]
) -> Value:
    """Where elements go along a dimension. Along an axis that only gives their places, or walks a
    part of its dimension, they end with it: what lies beyond goes to -1, which is in no tensor. So
    do all elements of a block of it but the last, if one element is stored for each block; or but
    the first, if all are the same.
    """
    found = block_of(entry, context.kernel.definers)
    blocks = found if found and found[0] in stored_blocks(op, context.kernel.definers) else None
    b = context.builder
    place = entry_of(entry, context, find).get(*piece)
    for name in _ends_along(entry, context, op):
        place = b.cast(place, I32, "place", loc=op.loc)
        inside = context.is_inside(name, context.indices(name).get(*piece))
        args = inside, place, b.integer(-1)
        place = b.map("where", *args, type=place.type, wish="place")
    if blocks:
        stored = context.is_last(*blocks, *piece)
        if is_even(op.value, *blocks, context.kernel.definers):
            # Neighbours that a thread has do not begin blocks, as is known without their sizes.
            stored = context.is_first(*blocks, *piece)
        args = stored, place, b.integer(-1)
        place = b.map("where", *args, type=place.type, wish="place")
    return place


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
