"""Add up across the lanes of a warp behind a loop, not in each of its iterations.

Before:
    %total2 = for_range(..., init=(%zeros,), args=(%total1: f32[q],)) {
      ...
      %scaled = map(fn="mul", args=(%total1, %shrink))
      %sum = reduce(fn="add", x=%p, axis="t")
      %more = map(fn="add", args=(%scaled, %sum))
      yield(values=(%more,))
    }
After:
    %t_lanes: axis<t_lanes of T by 8 columns> = axis_at(start=%c0, inside=True)
    %partial = for_range(..., init=(%zeros,), args=(%total1: f32[q, t_lanes],)) {
      ...
      %scaled: f32[q, t_lanes] = map(fn="mul", args=(%total1, %shrink))
      %sum: f32[q, t_lanes] = fold_columns(x=%p, axis="t")
      %more: f32[q, t_lanes] = map(fn="add", args=(%scaled, %sum))
      yield(values=(%more,))
    }
    %total2: f32[q] = reduce(fn="add", x=%partial, axis="t_lanes")

A thread has two columns of each eight, and adds them by itself; to add up the four lanes that share
a row takes two shuffles and their latencies, and nothing can be moved across them. A sum that is
only scaled by what its row has in common, and added to, may be left in eight columns.

Why here: loops run over numbers, and are still whole.
"""

from __future__ import annotations

import dataclasses

from wsdsl.ir.barrier_ops import ForRange
from wsdsl.ir.fragment_ops import LANE_COLUMNS
from wsdsl.ir.op import Kernel, Region, Value, operands
from wsdsl.ir.pipeline_ops import AxisAt, FoldColumns, Partition, with_partitions
from wsdsl.ir.tile_ops import Full, Map, Reduce
from wsdsl.ir.types import Axis, Tile
from wsdsl.ir.walk import Namer, definers, retype, used_inside, uses, with_regions, yielded
from wsdsl.lowering.axes import axes_of
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.lanes import holds_vectors
from wsdsl.lowering.zeros import tiles_of_zeros


def defer_sums(kernel: Kernel) -> Kernel:
    namer = Namer.of(kernel)
    if holds_vectors(kernel):
        return kernel  # Lanes have no eight columns; memory takes longer than what is saved.

    def change(op: Partition) -> Partition:
        return _Deferring(kernel, op, namer).partition() if op.share == "rows" else op

    return with_partitions(kernel, change, "compute")


class _Deferring:
    """Of one partition. `lanes` are the axes of eight columns, by the axis that is summed."""

    def __init__(self, kernel: Kernel, own: Partition, namer: Namer) -> None:
        self.own, self.builder, self.axes = own, Builder(namer), axes_of(kernel)
        self.zeros, self.made = tiles_of_zeros(own.body), definers(own.body)
        self.lanes: dict[str, Axis] = {}
        self.behind: Region = ()

    def partition(self) -> Partition:
        body = self.region(self.own.body)
        if not self.lanes:
            return self.own
        b = self.builder
        with b.region() as first:
            start = b.integer(0)
            for axis in self.lanes.values():
                b.add(AxisAt(result=Value(axis.name, axis), start=start, inside=True))
        return dataclasses.replace(self.own, body=(*first, *body))

    def region(self, region: Region) -> Region:
        with self.builder.region() as made:
            for op in region:
                op = with_regions(op, self.region)
                if isinstance(op, ForRange):
                    for n in range(len(op.args)):
                        op = self.deferred(op, n)
                self.builder.add(op)
                self.builder.ops += self.behind
                self.behind = ()
        return tuple(made)

    def deferred(self, loop: ForRange, n: int) -> ForRange:
        """The loop with its n-th variable left in eight columns, if that may be."""
        found = self.sums(loop, n)
        if found is None:
            return loop
        parts, folded = found
        b, axis = self.builder, self.lanes_of(folded[0].axis)
        b.loc = loop.loc

        def wide(value: Value) -> Value:
            return Value(value.name, Tile(value.as_tile.dtype, (*value.as_tile.axes, axis.name)))

        swap = {v: wide(v) for v in parts}
        body = tuple(
            FoldColumns(result=op.result, x=op.x, axis=op.axis, loc=op.loc)
            if isinstance(op, Reduce) and op in folded
            else op
            for op in loop.body
        )
        swap |= {op.result: wide(op.result) for op in folded}
        zeros = self.made[loop.init[n]]
        assert isinstance(zeros, Full)
        first = wide(b.value(zeros.result.name, zeros.result.type))
        b.add(dataclasses.replace(zeros, result=first))
        total = loop.result[n]
        partial = wide(b.value("partial", total.type))
        self.behind = (*self.behind, Reduce(result=total, fn="add", x=partial, axis=axis.name))
        return dataclasses.replace(
            loop,
            init=(*loop.init[:n], first, *loop.init[n + 1 :]),
            args=tuple(swap.get(v, v) for v in loop.args),
            result=(*loop.result[:n], partial, *loop.result[n + 1 :]),
            body=retype(body, swap),
        )

    def lanes_of(self, summed: str) -> Axis:
        if summed not in self.lanes:
            name = self.builder.namer.new(f"{summed}_lanes")
            self.lanes[summed] = Axis(name, self.axes[summed].dim, LANE_COLUMNS, "columns")
        return self.lanes[summed]

    def sums(self, loop: ForRange, n: int) -> tuple[list[Value], list[Reduce]] | None:
        """The values that become of the variable in an iteration, and what is added to it."""
        arg, kind = loop.args[n], loop.args[n].type
        made = self.made.get(loop.init[n])
        if not isinstance(kind, Tile) or loop.init[n] not in self.zeros:
            return None
        rows = [self.axes[name].role for name in kind.axes] == ["rows"]
        if not rows or kind.dtype.name != "f32" or not isinstance(made, Full):
            return None
        once = {op.result: op for op in loop.body if isinstance(op, Reduce)}
        counts = [*uses(loop.body)]
        parts, folded = [arg], list[Reduce]()
        for op in loop.body[:-1]:
            of = [v for v in operands(op) if v in parts]
            if used_inside(op) & {*parts}:
                return None
            if not of:
                continue
            rest = [v for v in operands(op) if v not in parts]
            if len(of) != 1 or not isinstance(op, Map) or op.fn not in ("add", "mul"):
                return None
            (other,) = rest
            if op.fn == "add":
                reduce = once.get(other)
                if reduce is None or not self.folds(reduce) or counts.count(other) != 1:
                    return None
                folded.append(reduce)
            parts.append(op.result)
        handed = [v for v in yielded(loop.body) if v in parts]
        if handed != [yielded(loop.body)[n]] or len({op.axis for op in folded}) != 1:
            return None
        return parts, folded

    def folds(self, op: Reduce) -> bool:
        f32 = op.x.as_tile.dtype.name == "f32"
        return f32 and op.fn == "add" and self.axes[op.axis].role == "columns"
