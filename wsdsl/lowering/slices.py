"""Finish a tile all at once: each piece's CTA sums and stores a part of the columns.

    store(tensor=%partials, index=(%m_piece, %n_piece), value=%acc)
    named_barrier_sync(barrier=8, num_warpgroups=2)
    arrive_flag(tensor=%turns, index=(%flag,), wrap=%twice)
    wait_flag(tensor=%turns, index=(%flag,), count=%parts)
    for_range(index=%j, start=%part, stop=%num, step=%parts) {
      ... the columns 32 j and on of all pieces, summed in their order ...
      ... what is done with the whole sums, for as many columns ...
    }
    named_barrier_sync(barrier=8, num_warpgroups=2)
    arrive_flag(tensor=%turns, index=(%flag,), wrap=%twice)

A flag counts the pieces that have left their sums, then those that are done with them; the last one
makes it 0 again. Nobody who waits misses that it was high enough: it has not been counted as done.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from wsdsl.ir.barrier_ops import ForRange, WaitFlag
from wsdsl.ir.op import Region, Value, bound, results_of
from wsdsl.ir.pipeline_ops import AxisAt, FinishTile
from wsdsl.ir.tile_ops import Full, Map, Yield
from wsdsl.ir.types import Axis, Tile
from wsdsl.ir.walk import retype, uses, walk
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.partials import Partials

AT_ONCE = 8
"""Pieces that are loaded before the first is needed."""


def slice_width(columns: int, splits: int) -> int:
    """Columns of a part: as many as a line of SMEM has, unless some pieces had none then."""
    fitting = [w for w in (64, 32, 16) if columns % w == 0]
    return next((w for w in fitting if columns // w >= splits), fitting[-1])


def finish_in_slices(
    partials: Partials, op: FinishTile, splits: int, starts: Mapping[str, Value]
) -> None:
    b = partials.builder
    assert op.part is not None and op.parts is not None
    flags, flag = partials.flag(op.slot)
    first = b.times(op.slot, splits, "first_piece")
    own = b.map("add", first, op.part, wish="piece")
    for i, sum in enumerate(op.sums):
        partials.store(sum, partials.place(sum, i, partials.line(sum, own), splits))
    wrap = b.plus(b.times(op.parts, 2, "twice"), -1, "twice")
    partials.arrive(flags, flag, wrap=wrap)
    b.add(WaitFlag(tensor=flags, index=(flag,), count=op.parts))
    columns = _columns(partials, op)
    width = slice_width(columns.size, splits)
    j = b.value("j", own.type)
    with b.region() as body:
        offset = b.times(j, width, "offset")
        kind = dataclasses.replace(columns, name=b.namer.new(f"{columns.name}_slice"), size=width)
        partials.axes[kind.name] = kind
        axis = b.value(kind.name, kind)
        b.add(AxisAt(result=axis, start=b.map("add", starts[columns.name], offset, wish="start")))
        wholes = [
            _whole(
                partials, i, _narrower(sum, columns.name, kind.name), (first, op, offset), splits
            )
            for i, sum in enumerate(op.sums)
        ]
        for inner in _narrowed(op, columns.name, axis, wholes, b):
            b.add(inner)
        b.add(Yield())
    num = b.integer(columns.size // width)
    b.add(ForRange(index=j, start=op.part, stop=num, step=op.parts, body=tuple(body)))
    partials.arrive(flags, flag, wrap=wrap)


def _columns(partials: Partials, op: FinishTile) -> Axis:
    assert isinstance(op.sums[0].type, Tile)
    found = partials.role(op.sums[0].type, "columns")
    assert found is not None
    return found


def _narrower(value: Value, name: str, other: str) -> Value:
    """The value with another column axis."""
    assert isinstance(value.type, Tile)
    axes = tuple(other if a == name else a for a in value.type.axes)
    return Value(value.name, dataclasses.replace(value.type, axes=axes))


def _whole(
    partials: Partials,
    number: int,
    like: Value,
    where: tuple[Value, FinishTile, Value],
    splits: int,
) -> Value:
    """The sum over all pieces, the first one first. Those that do not exist lie outside of the
    tensor, and are 0.
    """
    b, (first, op, column) = partials.builder, where
    assert isinstance(like.type, Tile) and op.parts is not None
    kind, parts = like.type, op.parts
    zero = b.constant(0.0 if kind.dtype.is_float else 0, Tile(kind.dtype), "nothing")
    total = b.add(Full(result=b.value("total", kind), value=zero)).result
    name = f"partials_{number}" if number else "partials"
    outside = b.size(f"{name}_lines")

    def add(total: Value, base: Value, count: int) -> Value:
        found: list[Value] = []
        for i in range(count):
            piece = b.plus(base, i, "other")
            line = partials.line(like, b.map("add", first, piece, wish="other"))
            exists = b.map("lt", piece, parts)
            line = b.map("where", exists, line, outside, type=line.type, wish="line")
            found.append(partials.load(kind, partials.place(like, number, line, splits, column)))
        for partial in found:
            made = b.value("total", kind)
            total = b.add(Map(result=made, fn="add", args=(total, partial))).result
        return total

    if splits <= AT_ONCE:
        return add(total, b.integer(0), splits)
    base, arg = b.value("base", parts.type), b.value("total", kind)
    with b.region() as body:
        b.add(Yield(values=(add(arg, base, AT_ONCE),)))
    loop = ForRange(
        result=(b.value("total", kind),),
        index=base,
        start=b.integer(0),
        stop=parts,
        step=b.integer(AT_ONCE),
        init=(total,),
        args=(arg,),
        body=tuple(body),
    )
    return b.add(loop).result[0]


def _narrowed(op: FinishTile, name: str, axis: Value, wholes: list[Value], b: Builder) -> Region:
    """What is done with the sums, for the columns of a slice."""
    assert isinstance(axis.type, Axis)
    swap = dict(zip(op.args, wholes, strict=True))
    made = [v for inner in walk(op.body) for v in (*results_of(inner), *bound(inner))]
    for value in made:
        if isinstance(value.type, Tile) and name in value.type.axes:
            swap[value] = _narrower(value, name, axis.type.name)
    for value in uses(op.body):
        if isinstance(value.type, Axis) and value.type.name == name:
            swap[value] = axis
    return retype(op.body, swap)
