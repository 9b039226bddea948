"""Reduce rows across threads after a loop, not in each of its iterations.

Before:
    %total2 = for_range(..., init=(%zeros,), args=(%total1: f32[n],)) {
      ...
      %sum: f32[n] = reduce(fn="add", x=%x, axis="m")
      %more: f32[n] = map(fn="add", args=(%total1, %sum))
      yield(values=(%more,))
    }
After:
    %m_lanes: axis<m_lanes of M by 8 rows> = axis_at(start=%c0, inside=True)
    %partial = for_range(..., init=(%nothing,), args=(%total1: f32[m_lanes, n],)) {
      ...
      %sum: f32[m_lanes, n] = fold_rows(fn="add", x=%x, axis="m")
      %more: f32[m_lanes, n] = map(fn="add", args=(%total1, %sum))
      yield(values=(%more,))
    }
    %total2: f32[n] = reduce(fn="add", x=%partial, axis="m_lanes")

All warps share the rows that are reduced, so a reduction takes shuffles and SMEM. A thread-local
partial reduction has as many rows as a warpgroup's threads cover at a time, of which each thread
has one. It begins with the neutral element; the loop's initial value is joined after the loop.
Row sums of an MMA's columns stay in the loop: two shuffles per row cost nothing there (attention
on an H200 takes 0.99 to 1.01 of the time with thread-local sums).

Why here: loops run over numbers, and are still whole.
"""

import dataclasses

from wsdsl.ir.op import Kernel, Op, Region, Value, operands, with_fields
from wsdsl.ir.ops import AxisAt, FoldRows, Full, Loop, Map, Partition, Reduce, with_partitions
from wsdsl.ir.rewriter import Namer, retype, used_inside, uses, with_regions, yielded
from wsdsl.ir.types import Axis, Tile
from wsdsl.lowering.axes import axes_of
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.register_layout import height_of, reduces_rows
from wsdsl.lowering.zero_padding import neutral, tiles_of_zeros


def defer_sums(kernel: Kernel) -> Kernel:
    if not kernel.of(Reduce) or not reduces_rows(kernel):
        return kernel
    namer = Namer.of(kernel)

    def change(op: Partition) -> Partition:
        return _Deferring(kernel, op, namer).partition() if op.share == "rows" else op

    return with_partitions(kernel, change, "compute")


class _Deferring:
    """Defer the reductions of one partition. `lanes`: the axes of thread-local rows, by the axis
    that is reduced.
    """

    def __init__(self, kernel: Kernel, own: Partition, namer: Namer) -> None:
        self.size = height_of(kernel) * own.num_warpgroups
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
                if isinstance(op, Loop):
                    for n in range(len(op.args)):
                        op = self.deferred(op, n)
                self.builder.add(op)
                self.builder.ops += self.behind
                self.behind = ()
        return tuple(made)

    def deferred(self, loop: Loop, n: int) -> Loop:
        """Leave the n-th variable of a loop in thread-local rows, if that is possible."""
        found = self.sums(loop, n)
        if found is None:
            return loop
        parts, folded = found
        b, axis = self.builder, self.lanes_of(folded[0].axis)
        b.loc = loop.loc

        def wide(value: Value) -> Value:
            return Value(value.name, Tile(value.as_tile.dtype, (axis.name, *value.as_tile.axes)))

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
            self.lanes[summed] = Axis(name, self.axes[summed].dim, self.size, "rows")
        return self.lanes[summed]

    def fold(self, op: Reduce) -> Op:
        return FoldRows(result=op.result, fn=op.fn, x=op.x, axis=op.axis, loc=op.loc)

    def sums(self, loop: Loop, n: int) -> tuple[list[Value], list[Reduce]] | None:
        """The values that become of the variable in an iteration, and what is added to it."""
        arg, kind = loop.args[n], loop.args[n].type
        if not isinstance(kind, Tile) or "rows" in (self.axes[name].role for name in kind.axes):
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

    def folds(self, op: Reduce, fn: str) -> bool:
        """Not the thread-local rows of an inner loop, once more."""
        if op.fn != fn or op.axis not in self.axes or self.axes[op.axis].role != "rows":
            return False
        dtype = op.x.as_tile.dtype
        # Sums of narrower floats are rounded in each iteration, as the source says.
        return dtype.name == "f32" or fn != "add" or dtype.is_integer
