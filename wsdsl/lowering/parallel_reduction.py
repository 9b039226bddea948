"""Run the split-K fixup in parallel: each split's CTA reduces and stores a part of the columns.

    store(tensor=%partials, index=(%m_piece, %n_piece), value=%acc)
    named_barrier_sync(barrier=8, num_warpgroups=2)
    semaphore_arrive(tensor=%flags, index=(%flag,), wrap=%twice)
    semaphore_wait(tensor=%flags, index=(%flag,), count=%parts)
    for_range(index=%j, start=%part, stop=%num, step=%parts) {  # an `if` where one part is all
      ... reduce the columns from 32 j on over all splits, in their order ...
      ... the epilogue, for these columns ...
    }
    named_barrier_sync(barrier=8, num_warpgroups=2)
    semaphore_arrive(tensor=%flags, index=(%flag,), wrap=%twice, release=False)

A semaphore counts the splits that have stored their accumulators, then those that have read them;
the last one resets it. No waiting split misses the count: its own read is not counted yet.

**In a cluster** the CTAs that split a contraction each reduce and store a slice.

Before:
    splitk_fixup(sums=(%acc,), slot=%slot, begin=%begin, end=%end, contraction="K",
                reduction="cluster", part=%part, parts=%parts, sharing=2, args=(%sum,)) {
      store(tensor=%C, index=(%m, %n), value=%sum)
    }
After:
    %sums_ring = pipeline(depth=1, layouts=((f32[m, n_slice],),), senders=1)
      ...
      %n_slice: axis<n_slice of N by 64 columns> = axis_at(start=%slice)
      %sum: f32[m, n_slice] = cluster_reduce(sums=(%acc,), part=%part, sharing=2, ring=%sums_ring)
      store(tensor=%C, index=(%m, %n_slice), value=%sum)

Accumulators go from registers to the other CTAs' SMEM: nothing is written to GMEM, and only the
cluster waits.

**Column sums**, one row per split, are reduced and stored by the first split's CTA
(`column_sums.py`).
"""

import dataclasses
import math
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.hardware.tma_box import TMA_ALIGN
from wsdsl.ir.op import Op, Region, Value, bound, results_of, with_fields
from wsdsl.ir.rewriter import retype, rewrite, uses, walk
from wsdsl.ir.types import Axis, Ring, Tensor, Tile
from wsdsl.lazy import cached_property
from wsdsl.lowering.column_sums import SumsOfLines
from wsdsl.lowering.split_k_workspace import Partials, Place

NARROW = 8
TURN_COLUMNS = 32
"""Columns whose reads take as long as the latency of a load."""
MOST_AT_ONCE = 16
"""Splits that are loaded before the first is needed, ..."""
ROOM = {1: 208, 2: 208, 3: 136, 4: 88}
"""... in registers, by the number of consumers. Registers of the tile's accumulators are not free:
ptxas keeps them for the next tile.
"""


@dataclass(frozen=True)
class Slicing:
    """The distribution of a tile's columns to splits. `sums`: elements of all its accumulators;
    `least`: the least columns of a slice.
    """

    rows: int
    columns: int
    sums: int
    consumers: int
    splits: int
    least: int = NARROW

    @cached_property
    def width(self) -> int:
        """Columns of a slice: at most as many as a line of SMEM has, so that who does most of them
        is done soonest; a part of a line where 16 does not divide the columns.
        """
        columns, least = self.columns, self.least
        lines = (64, 32, 16, NARROW) if columns % 16 == 0 else (56, 40, 24, NARROW)
        fitting = [w for w in lines if columns % w == 0 and (w >= least or columns % least)]
        # Registers have at least the total and one split.
        held = [w for w in fitting if 2 * max(1, self._each(w)) <= self._room]
        return min(held or fitting[-1:] or [columns], key=self._columns_of_time)

    def _columns_of_time(self, width: int) -> int:
        turns = -(-self.columns // width // self.splits)
        return turns * (width + -(-self.splits // self.at_once(width)) * TURN_COLUMNS)

    def at_once(self, width: int) -> int:
        """Splits whose slices are in registers at the same time, in addition to the total."""
        fitting = self._room // max(1, self._each(width))
        return max(1, min(MOST_AT_ONCE, fitting - 1))

    @property
    def _room(self) -> int:
        """Registers per thread in addition to the tile's accumulators."""
        return ROOM[self.consumers] - self.sums // (128 * self.consumers)

    def _each(self, width: int) -> int:
        """Registers per thread for a slice of a split."""
        return self.rows * width // (128 * self.consumers)


def least_slice(body: Region) -> int:
    """Columns of a slice, at the least: TMA stores lines of 16 bytes."""
    stored = (op.tensor.type for op in walk(body) if isinstance(op, ops.Store))
    lines = (TMA_ALIGN // kind.dtype.bytes for kind in stored if isinstance(kind, Tensor))
    return max((NARROW, *lines))


class ParallelReduction:
    """Of one tile."""

    def __init__(self, partials: Partials, op: ops.SplitkFixup, splits: int, height: int) -> None:
        """`height`: rows of a fragment with a row per thread, if rows are reduced; else 0."""
        self.height = height
        assert op.part is not None and op.parts is not None
        self.partials, self.op, self.splits = partials, op, splits
        self.builder, self.part, self.parts = partials.builder, op.part, op.parts
        self.first = self.builder.times(op.slot, splits, "first_piece")

    def finish(self, starts: Mapping[str, Value]) -> None:
        """`starts`: where the tile begins along each axis."""
        b, partials = self.builder, self.partials
        flags, flag = partials.flag(self.op.slot)
        own = b.map("add", self.first, self.part, wish="piece")
        places: list[Place] = []
        for i, sum in enumerate(self.op.sums):
            places.append(partials.place(sum, i, partials.line(sum, own), self.splits))
            partials.store(sum, places[-1])
        wrap = b.plus(b.times(self.parts, 2, "twice"), -1, "twice")
        partials.arrive(flags, flag, wrap=wrap)
        b.add(ops.SemaphoreWait(tensor=flags, index=(flag,), count=self.parts))
        if self.height:
            self.finish_columns(places)
        else:
            self.finish_slices(places, starts)
        partials.arrive(flags, flag, wrap=wrap, release=False)

    def finish_columns(self, places: list[Place]) -> None:
        """Run the epilogue in the CTA of the first split; in all CTAs, except other stores, if each
        iterates over its part again.
        """
        b, op = self.builder, self.op
        of = SumsOfLines(self.partials, self.height, self.first, self.parts, self.splits)
        again = any(isinstance(o, ops.ForRange) for o in op.body)
        first = b.map("lt", self.part, b.integer(1), wish="first")
        with nullcontext() if again else b.when(first):
            whole = map(of.joined, op.args, places, op.fns or ("add",) * len(op.sums))
            for o in retype(op.body, dict(zip(op.args, whole, strict=True))):
                with b.when(first) if again and isinstance(o, ops.Store) else nullcontext():
                    b.add(o)

    def finish_slices(self, places: list[Place], starts: Mapping[str, Value]) -> None:
        b, partials = self.builder, self.partials
        columns = columns_of(partials, self.op)
        self.slicing = self._slicing(columns.size)
        width = self.slicing.width
        num = columns.size // width
        j = b.value("j", self.part.type) if num > 1 else b.integer(0)
        with b.region() as body:
            offset = b.times(j, width, "offset")
            axis, alike = slice_at(partials, self.op, width, offset, starts)
            wholes = [
                self.whole(i, like, place, offset)
                for i, (like, place) in enumerate(zip(alike, places, strict=True))
            ]
            b.ops += narrowed(self.op, columns.name, axis, wholes)
        stop = b.integer(num)
        if num > 1:
            run = dict[str, Any](index=j, start=self.part, stop=stop, step=self.parts)
            b.add(ops.ForRange(**run, body=(*body, ops.Yield())))
        else:
            # Not a loop: LLVM would see that it ends, and the skeleton would not be the kernel's.
            with b.when(b.map("lt", self.part, stop, wish="first")):
                b.ops += body

    def _slicing(self, columns: int) -> Slicing:
        kinds = [v.type for v in self.op.sums if isinstance(v.type, Tile)]
        axes = [[self.partials.axes[a] for a in kind.axes] for kind in kinds]
        return Slicing(
            rows=max((a.size for held in axes for a in held if a.role == "rows"), default=1),
            columns=columns,
            sums=sum(math.prod(a.size for a in held) for held in axes),
            consumers=self.partials.consumers,
            splits=self.splits,
            least=least_slice(self.op.body),
        )

    def whole(self, number: int, like: Value, own: Place, column: Value) -> Value:
        """Return the total over all splits, in order, of `like`'s columns from `column` on."""
        b, partials, kind = self.builder, self.partials, like.as_tile
        zero = b.constant(0.0 if kind.dtype.is_float else 0, Tile(kind.dtype), "nothing")
        total = b.add(ops.Full(result=b.value("total", kind), value=zero)).result
        outside = b.size(str(own.tensor.as_tensor.dims[0]))

        def add(base: Value, total: Value, count: int) -> Value:
            found = [
                self.piece(number, like, b.plus(base, i, "other"), column, outside)
                for i in range(count)
            ]
            for part in found:
                total = b.make(ops.Map, "total", kind, fn="add", args=(total, part))
            return total

        at_once = self.slicing.at_once(self.slicing.width)
        if self.splits <= at_once:
            return add(b.integer(0), total, self.splits)
        add_more = partial(add, count=at_once)
        return partials.over_pieces(self.parts, at_once, total, add_more)

    def piece(self, number: int, like: Value, piece: Value, column: Value, outside: Value) -> Value:
        """Load the accumulators of a split; those of a missing split are 0 (out of bounds)."""
        b, partials = self.builder, self.partials
        line = partials.line(like, b.map("add", self.first, piece, wish="other"))
        exists = b.map("lt", piece, self.parts)
        line = b.map("where", exists, line, outside, type=line.type, wish="line")
        return partials.load(like.as_tile, partials.place(like, number, line, self.splits, column))


def columns_of(partials: Partials, op: ops.SplitkFixup) -> Axis:
    """Those that are cut into slices, the same of all sums."""
    found = partials.role(op.sums[0].as_tile, "columns")
    assert found is not None
    return found


def slice_at(
    partials: Partials, op: ops.SplitkFixup, width: int, offset: Value, starts: Mapping[str, Value]
) -> tuple[Value, list[Value]]:
    """An axis of `width` columns, `offset` after the tile's first, and the totals along it."""
    b, columns = partials.builder, columns_of(partials, op)
    name = b.namer.new(f"{columns.name}_slice")
    axis = Value(name, dataclasses.replace(columns, name=name, size=width))
    partials.axes[name] = axis.as_axis
    # A dimension that is taken whole begins nowhere.
    begin = starts.get(columns.name)
    start = b.map("add", begin, offset, wish="start") if begin else offset
    b.add(ops.AxisAt(result=axis, start=start))
    return axis, [narrower(sum, columns.name, name) for sum in op.args]


def narrower(value: Value, name: str, other: str) -> Value:
    """The value with another column axis."""
    axes = tuple(other if a == name else a for a in value.as_tile.axes)
    return Value(value.name, dataclasses.replace(value.type, axes=axes))


def narrowed(op: ops.SplitkFixup, name: str, axis: Value, wholes: list[Value]) -> Region:
    """Return the epilogue for the columns of a slice."""
    swap = dict(zip(op.args, wholes, strict=True))
    made = [v for inner in walk(op.body) for v in (*results_of(inner), *bound(inner))]
    for value in made:
        if isinstance(value.type, Tile) and name in value.type.axes:
            swap[value] = narrower(value, name, axis.as_axis.name)
    whole = {v.type.name: v for v in uses(op.body) if isinstance(v.type, Axis)}.get(name)
    if whole is None:
        return retype(op.body, swap)
    # The slice's axis is there already.
    body = tuple(inner for inner in op.body if whole not in results_of(inner))
    return _ending(retype(body, swap | {whole: axis}), axis, whole)


def _ending(region: Region, axis: Value, whole: Value) -> Region:
    """Take the end of a slice from the whole tile."""

    def change(op: Op) -> tuple[Op]:
        ends = isinstance(op, ops.End) and op.axis == axis
        return (with_fields(op, axis=whole) if ends else op,)

    return rewrite(region, change)


def finish_in_cluster(
    partials: Partials, op: ops.SplitkFixup, starts: Mapping[str, Value]
) -> ops.Pipeline:
    """Return the pipeline; `starts`: the first index of the tile along each axis."""
    assert op.part is not None
    b, columns = partials.builder, columns_of(partials, op)
    width = columns.size // op.sharing
    offset = b.times(op.part, width, "offset")
    axis, wholes = slice_at(partials, op, width, offset, starts)
    layout = tuple(v.type for v in wholes if isinstance(v.type, Tile))
    name = b.value("sums_ring", Ring())
    sides = dict[str, Any](consumers=partials.consumers, senders=op.sharing - 1)
    ring = ops.Pipeline(result=name, depth=1, layouts=(layout,), **sides, loc=op.loc)
    shared = dict[str, Any](part=op.part, sharing=op.sharing, barrier=partials.barrier)
    b.add(ops.ClusterReduce(result=tuple(wholes), sums=op.sums, ring=name, **shared))
    b.ops += narrowed(op, columns.name, axis, wholes)
    return ring
