"""The whole sums of columns, of a tile whose pieces each have left a line of them.

    %pieces: axis<pieces of partials_lines by 48 rows> = axis_at(start=%c0, stop=%parts)
    %piece: i32[pieces] = index(axis=%pieces)
    ... the line of each that exists ...
    %partial: f32[pieces, n] = load(tensor=%partials, index=(%line, %n))
    %sum: f32[n] = reduce(fn="add", x=%partial, axis="pieces")

Threads join lines as they do the rows of a tensor, in an order of their own that is the same in
every run. What there is no piece for lies outside of the tensor, and takes no part.
"""

from __future__ import annotations

import dataclasses

from wsdsl.ir.barrier_ops import ForRange
from wsdsl.ir.op import Value
from wsdsl.ir.pipeline_ops import AxisAt, RenameAxes
from wsdsl.ir.tile_ops import Full, Index, Load, Reduce, Yield
from wsdsl.ir.types import BOOL, I32, Axis, Tile
from wsdsl.lowering.partials import Partials, Place
from wsdsl.lowering.zeros import neutral

MOST_AT_ONCE = 8
"""Lines of a thread."""


class SumsOfLines:
    """Of a tile whose `parts` pieces, up to `splits`, begin with line `first`."""

    def __init__(
        self, partials: Partials, height: int, first: Value, parts: Value, splits: int
    ) -> None:
        self.partials, self.first, self.parts, self.splits = partials, first, parts, splits
        self.each = height * partials.consumers
        """Lines of which each thread has one."""

    def joined(self, like: Value, own: Place, fn: str) -> Value:
        """By `fn`; `own` is the place of this CTA's piece."""
        b = self.partials.builder
        size = self.each * min(MOST_AT_ONCE, -(-self.splits // self.each))
        kind = dataclasses.replace(like.as_tile, axes=(own.index[1].as_axis.name,))
        if size >= self.splits:
            total = self.of_some(kind, own, fn, size, b.integer(0))
        else:
            total = self.of_all(kind, own, fn, size)
        return b.add(RenameAxes(result=b.value("total", like.type), x=total)).result

    def of_all(self, kind: Tile, own: Place, fn: str, size: int) -> Value:
        b = self.partials.builder
        nothing = b.constant(neutral(fn, kind.dtype), Tile(kind.dtype), "nothing")
        init = b.add(Full(result=b.value("total", kind), value=nothing)).result
        start, arg = b.value("base", self.parts.type), b.value("total", kind)
        with b.region() as body:
            found = self.of_some(kind, own, fn, size, start)
            b.add(Yield(values=(b.map(fn, arg, found, wish="total"),)))
        total = b.value("total", kind)
        b.add(
            ForRange(
                result=(total,),
                index=start,
                start=b.integer(0),
                stop=self.parts,
                step=b.integer(size),
                init=(init,),
                args=(arg,),
                body=tuple(body),
            )
        )
        return total

    def of_some(self, kind: Tile, own: Place, fn: str, size: int, start: Value) -> Value:
        """Those of `size` pieces from `start` on."""
        b, dim = self.partials.builder, str(own.tensor.as_tensor.dims[0])
        name = b.namer.new("pieces")
        axis, numbers = Axis(name, dim, size, "rows"), Tile(I32, (name,))
        self.partials.axes[name] = axis
        pieces = b.add(AxisAt(result=Value(name, axis), start=start, stop=self.parts)).result
        piece = b.add(Index(result=b.value("piece", numbers), axis=pieces)).result
        exists = b.map("lt", piece, self.parts, type=Tile(BOOL, (name,)), wish="exists")
        line = b.map("add", piece, self.first, type=numbers, wish="line")
        line = b.map("where", exists, line, b.size(dim), type=numbers, wish="line")
        held = b.value("partial", Tile(kind.dtype, (name, *kind.axes)))
        b.add(Load(result=held, tensor=own.tensor, index=(line, own.index[1])))
        return b.add(Reduce(result=b.value("sum", kind), fn=fn, x=held, axis=name)).result
