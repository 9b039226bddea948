"""Give loops that must have equal tiles one loop variable, whatever their names are.

Before:
    for_tiles(index=%n: axis<n of N>) {
      %x: f32[m, n] = load(tensor=%X, index=(%m, %n))
    for_tiles(index=%c: axis<c of N>) {
      store(tensor=%X, index=(%m, %c), value=%zeros)
After:
    for_tiles(index=%c: axis<n__3 of N>) {
      store(tensor=%X, index=(%m, %c), value=%zeros)

The loops follow each other along rows that may stay in registers, or of a tensor that is both read
and stored. The schedule's entry for `c` becomes the one for `n`, unless it has two sizes for them.

Why here: all later passes find the loops of a schedule's entry by the names of axes.
"""

import dataclasses
from typing import Any

from wsdsl.ir.analysis.intervals import walks_a_part
from wsdsl.ir.op import Kernel, Op, Value, with_fields
from wsdsl.ir.ops import OVER_AXIS, ForTiles, Load, Store
from wsdsl.ir.rewriter import definitions, retype, rewrite
from wsdsl.ir.types import Axis, Tile
from wsdsl.lowering.axes import axes_of, loop_variable, output_nest
from wsdsl.lowering.held_rows import held_dims
from wsdsl.schedule import Schedule, changed


def share_variables(kernel: Kernel) -> Kernel:
    shared, axes = _shared(kernel), axes_of(kernel)
    if not shared:
        return kernel
    own = [name for name in axes if loop_variable(name) in shared]
    new = {name: f"{shared[loop_variable(name)]}__{i}" for i, name in enumerate(own, len(axes))}

    def renamed(kind: Any) -> Any:
        if isinstance(kind, Axis):
            return dataclasses.replace(kind, name=new.get(kind.name, kind.name))
        own = kind.axes if isinstance(kind, Tile) else ()
        return Tile(kind.dtype, tuple(new.get(a, a) for a in own)) if own else kind

    def change(op: Op) -> tuple[Op]:
        over = isinstance(op, OVER_AXIS)
        return (with_fields(op, axis=new.get(op.axis, op.axis)) if over else op,)

    swap = {v: Value(v.name, renamed(v.type)) for v in definitions(kernel)}
    body = rewrite(retype(kernel.body, swap), change)
    given = kernel.schedule or Schedule()
    words = {
        field: {shared.get(name, name): n for name, n in own.items()}
        for field, own in (("tile", given.tile), ("cluster", given.cluster))
        if own
    }
    split = given.consumer_split
    given = changed(given, **words, consumer_split=shared.get(split or "", split))
    return dataclasses.replace(kernel, body=body, schedule=kernel.schedule and given)


def _shared(kernel: Kernel) -> dict[str, str]:
    """The variables of loops that must have the tiles of an earlier one, and its variable."""
    stored = {op.tensor for op in kernel.of(Store)} & {op.tensor for op in kernel.of(Load)}
    uses = (op for op in kernel.of(Load, Store) if op.tensor in stored)
    dims = held_dims(kernel) | {axis.dim for op in uses for axis in op.axes}
    tile = (kernel.schedule or Schedule()).tile or {}
    first, found = dict[Any, str](), dict[str, str]()
    for op in output_nest(kernel)[1]:
        if isinstance(op, ForTiles) and op.dim in dims and not walks_a_part(op):
            own = loop_variable(op.index.as_axis.name)
            other = first.setdefault((op.dim, op.index.as_axis.size), own)
            walked = {a.dim for a in axes_of(kernel).values() if loop_variable(a.name) == own}
            sizes = {tile[v] for v in (own, other) if v in tile}
            if own != other and len(walked) == 1 and len(sizes) < 2:
                found[own] = other
    return found
