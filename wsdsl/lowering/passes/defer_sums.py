"""Reduce across threads behind a loop, not in each of its iterations.

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

Where rows are reduced, which all warps share, what is left has a piece's rows, of which each thread
has one (`fold_rows`): of sums, and of the greatest and the least, too, to which nothing else is
done. They begin with what changes nothing, and what the loop began with is joined to them behind.

Why here: loops run over numbers, and are still whole.
"""

from __future__ import annotations

import dataclasses

from wsdsl.ir.barrier_ops import ForRange
from wsdsl.ir.fragment_ops import LANE_COLUMNS
from wsdsl.ir.op import Kernel, Op, Region, Value, operands, with_fields
from wsdsl.ir.pipeline_ops import AxisAt, FoldColumns, FoldRows, Partition, with_partitions
from wsdsl.ir.tile_ops import Full, Map, Reduce
from wsdsl.ir.types import Axis, Role, Tile
from wsdsl.ir.walk import Namer, retype, used_inside, uses, with_regions, yielded
from wsdsl.lowering.axes import axes_of
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.lanes import height_of, holds_vectors, reduces_rows
from wsdsl.lowering.zeros import neutral, tiles_of_zeros


def defer_sums(kernel: Kernel) -> Kernel:
    if not kernel.of(Reduce):
        return kernel
    namer = Namer.of(kernel)
    by_rows = reduces_rows(kernel)
    if holds_vectors(kernel) and not by_rows:
        return kernel  # Lanes have no eight columns; memory takes longer than what is saved.

    def change(op: Partition) -> Partition:
        return _Deferring(kernel, op, namer, by_rows).partition() if op.share == "rows" else op

    return with_partitions(kernel, change, "compute")


class _Deferring:
    """Of one partition. `lanes` are the axes of eight columns, by the axis that is summed; or of a
    piece's rows of each warpgroup (`by_rows`).
    """

    def __init__(self, kernel: Kernel, own: Partition, namer: Namer, by_rows: bool) -> None:
        self.by_rows = by_rows
        self.role: Role = "rows" if by_rows else "columns"
        self.size = height_of(kernel) * own.num_warpgroups if by_rows else LANE_COLUMNS
        self.own, self.builder, self.axes = own, Builder(namer), axes_of(kernel)
        self.zeros = tiles_of_zeros(own.body)
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
            kept = value.as_tile.axes
            axes = (axis.name, *kept) if self.by_rows else (*kept, axis.name)
            return Value(value.name, Tile(value.as_tile.dtype, axes))

        swap = {v: wide(v) for v in parts}
        body = tuple(
            self.fold(op) if isinstance(op, Reduce) and op in folded else op for op in loop.body
        )
        swap |= {op.result: wide(op.result) for op in folded}
        total, init, fn = loop.result[n], loop.init[n], folded[0].fn
        dtype = total.as_tile.dtype
        first, partial = wide(b.value(init.name, init.type)), wide(b.value("partial", total.type))
        nothing = b.constant(neutral(fn, dtype), Tile(dtype), "nothing")
        b.add(Full(result=first, value=nothing))
        whole = total if init in self.zeros else b.value(total.name, total.type)
        behind: list[Op] = [Reduce(result=whole, fn=fn, x=partial, axis=axis.name, loc=loop.loc)]
        if whole is not total:
            behind.append(Map(result=total, fn=fn, args=(init, whole), loc=loop.loc))
        self.behind = (*self.behind, *behind)
        return with_fields(
            loop,
            init=(*loop.init[:n], first, *loop.init[n + 1 :]),
            args=tuple(swap.get(v, v) for v in loop.args),
            result=(*loop.result[:n], partial, *loop.result[n + 1 :]),
            body=retype(body, swap),
        )

    def lanes_of(self, summed: str) -> Axis:
        if summed not in self.lanes:
            name = self.builder.namer.new(f"{summed}_lanes")
            self.lanes[summed] = Axis(name, self.axes[summed].dim, self.size, self.role)
        return self.lanes[summed]

    def fold(self, op: Reduce) -> Op:
        if self.by_rows:
            return FoldRows(result=op.result, fn=op.fn, x=op.x, axis=op.axis, loc=op.loc)
        return FoldColumns(result=op.result, x=op.x, axis=op.axis, loc=op.loc)

    def sums(self, loop: ForRange, n: int) -> tuple[list[Value], list[Reduce]] | None:
        """The values that become of the variable in an iteration, and what is added to it."""
        arg, kind = loop.args[n], loop.args[n].type
        if not isinstance(kind, Tile) or not self.may_be_left(loop.init[n], kind):
            return None
        once = {op.result: op for op in loop.body if isinstance(op, Reduce)}
        counts = [*uses(loop.body)]
        parts, folded, scaled = [arg], list[Reduce](), False
        for op in loop.body[:-1]:
            of = [v for v in operands(op) if v in parts]
            if not {*parts}.isdisjoint(used_inside(op)):
                return None
            if not of:
                continue
            rest = [v for v in operands(op) if v not in parts]
            if len(of) != 1 or len(rest) != 1 or not isinstance(op, Map):
                return None
            (other,) = rest
            if op.fn == "mul":
                scaled = True
            else:
                reduce = once.get(other)
                if reduce is None or not self.folds(reduce, op.fn) or counts.count(other) != 1:
                    return None
                folded.append(reduce)
            parts.append(op.result)
        handed = [v for v in yielded(loop.body) if v in parts]
        alike = len({(op.axis, op.fn) for op in folded}) == 1
        if handed != [yielded(loop.body)[n]] or not alike:
            return None
        if scaled and (folded[0].fn != "add" or loop.init[n] not in self.zeros):
            return None
        return parts, folded

    def may_be_left(self, init: Value, kind: Tile) -> bool:
        """Whether the variable is one for each row, or each column, that begins so."""
        roles = [self.axes[name].role for name in kind.axes]
        if self.by_rows:
            return "rows" not in roles
        return roles == ["rows"] and kind.dtype.name == "f32" and init in self.zeros

    def folds(self, op: Reduce, fn: str) -> bool:
        if op.fn != fn or self.axes[op.axis].role != self.role:
            return False
        dtype = op.x.as_tile.dtype
        # Narrower sums are rounded where the text says so.
        exact = dtype.name == "f32" or (self.by_rows and (fn != "add" or dtype.is_integer))
        return exact and (self.by_rows or fn == "add")
