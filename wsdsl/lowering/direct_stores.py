"""Stores that every thread makes for the elements it holds, straight to global memory."""

from __future__ import annotations

import dataclasses

from wsdsl.ir.memory_ops import StoreGlobal
from wsdsl.ir.op import Value
from wsdsl.ir.tile_ops import Cast, Store
from wsdsl.ir.types import I32, Axis, Fragment
from wsdsl.lowering.axes import tile_axes
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.reads import Find, entry_of, vector_of


def store_directly(
    context: PartitionContext, op: Store, find: Find, piece: tuple[int, int], value: Value
) -> None:
    b = context.builder
    index = tuple(_place(v, context, op, find, piece) for v in op.index)
    kinds = [v.type for v in (*index, value) if isinstance(v.type, Fragment)]
    by_rows = context.shapes.share == "rows"
    split = any((kind.rows if by_rows else kind.columns) > 1 for kind in kinds)
    last, pred = op.index[-1].type, None
    cut = isinstance(last, Axis) and context.tiles[last.name].is_clipped
    if not split and context.num_warpgroups > 1:
        assert context.warpgroup is not None
        pred = b.map("eq", context.warpgroup, b.integer(0), wish="first")
    b.add(
        StoreGlobal(
            tensor=op.tensor,
            index=index,
            value=value,
            vector=1 if op.accumulate or cut else vector_of(op.tensor, op.index, context),
            accumulate=op.accumulate,
            pred=pred,
            loc=op.loc,
        )
    )


def _place(
    entry: Value, context: PartitionContext, op: Store, find: Find, piece: tuple[int, int]
) -> Value:
    """Where elements go along a dimension. Along an axis that only gives their places, or walks a
    part of its dimension, they end with it: what lies beyond goes to -1, which is in no tensor.
    """
    b = context.builder
    place = entry_of(entry, context, find).get(*piece)
    named = {v.type.name for v in op.index if isinstance(v.type, Axis)}
    if isinstance(entry.type, Axis):
        along = [entry.type.name] if context.tiles[entry.type.name].is_clipped else []
    else:
        axes = tile_axes(entry)
        along = [name for name in axes if name not in named and not context.is_full(name)]
    for name in along:
        if place.as_fragment.dtype != I32:
            kind = dataclasses.replace(place.type, dtype=I32)
            place = b.add(Cast(result=b.value("place", kind), x=place, loc=op.loc)).result
        inside = context.is_inside(name, context.indices(name).get(*piece))
        args = inside, place, b.integer(-1)
        place = b.map("where", *args, type=place.type, wish="place")
    return place
