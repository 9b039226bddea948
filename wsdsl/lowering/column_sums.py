"""The whole sums of columns, of a tile whose pieces each have left a line of them.

    %pieces: axis<pieces of partials_lines by 48 rows> = axis_at(start=%c0, stop=%parts)
    %piece: i32[pieces] = index(axis=%pieces)
    ... the line of each that exists ...
    %partial: f32[pieces, n] = load(tensor=%partials, index=(%line, %n))
    %sum: f32[n] = reduce(fn="add", x=%partial, axis="pieces")

Threads join lines as they do the rows of a tensor, in an order of their own that is the same in
every run. What there is no piece for lies outside of the tensor, and takes no part.
"""

import dataclasses

from wsdsl.ir.ops import AxisAt, FoldRows, Full, Index, Load, Reduce, RenameAxes
from wsdsl.ir.types import F32, I32, Axis, DType, Tile, Value
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.register_tiles import RegisterTile
from wsdsl.lowering.split_k_workspace import Partials, Place
from wsdsl.lowering.zero_padding import neutral

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

        def add(base: Value, total: Value) -> Value:
            return b.map(fn, total, self.of_some(kind, own, fn, size, base), wish="total")

        return self.partials.over_pieces(self.parts, size, init, add)

    def of_some(self, kind: Tile, own: Place, fn: str, size: int, start: Value) -> Value:
        """Those of `size` pieces from `start` on."""
        b, dim = self.partials.builder, str(own.tensor.as_tensor.dims[0])
        name = b.namer.new("pieces")
        axis, numbers = Axis(name, dim, size, "rows"), Tile(I32, (name,))
        self.partials.axes[name] = axis
        pieces = b.add(AxisAt(result=Value(name, axis), start=start, stop=self.parts)).result
        piece = b.add(Index(result=b.value("piece", numbers), axis=pieces)).result
        exists = b.map("lt", piece, self.parts, wish="exists")
        line = b.map("add", piece, self.first, wish="line")
        line = b.map("where", exists, line, b.size(dim), type=numbers, wish="line")
        held = b.value("partial", Tile(kind.dtype, (name, *kind.axes)))
        b.add(Load(result=held, tensor=own.tensor, index=(line, own.index[1])))
        return b.add(Reduce(result=b.value("sum", kind), fn=fn, x=held, axis=name)).result


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
        return b.cast(made, dtype, "sum", loc=op.loc)

    return RegisterTile(shape, piece)


def _joined(
    op: Reduce | FoldRows, context: PartitionContext, x: RegisterTile, work: DType, j: int
) -> Value:
    """The rows of all pieces, as one piece: neighbours first, so that none waits for all."""
    b, left = context.builder, list[Value]()
    for i in range(x.shape.blocks):
        left.append(b.cast(x.get(i, j), work, "wide", loc=op.loc))
    while len(left) > 1:
        odd = left[len(left) & ~1 :]
        pairs = zip(left[::2], left[1::2], strict=False)
        left = [b.map(op.fn, one, other, wish="partial") for one, other in pairs] + odd
    return left[0]
