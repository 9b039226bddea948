"""Decide which products are in flight while threads do something else, and when slots go back.

**A loop whose products only add to what it carries** leaves them in flight: its slots are given
back an iteration later, when nothing reads them any more.

Before:
    %acc2 = for_range(index=%k, ..., init=(%acc0,), args=(%acc1,)) {
      %slot = consumer_wait(ring=%ring)
      ...
      %acc3 = contract(a=%a, b=%b, acc=%acc1)
      consumer_release(slot=%slot)
      yield(values=(%acc3,))
    }
    named_barrier_arrive(barrier=2, num_warpgroups=2)
After:
    %none = no_slot(ring=%ring)
    %acc2, %last = for_range(..., init=(%acc0, %none), args=(%acc1, %before: slot)) {
      %slot = consumer_wait(ring=%ring)
      ...
      %begun = contract(a=%a, b=%b, acc=%acc1, blocks=(0, 1))
      %more = map(fn="gt", args=(%k, %zero))
      consumer_release(slot=%before, pred=%more)
      %acc3 = contract(a=%a, b=%b, acc=%begun, blocks=(1, 2))
      yield(values=(%acc3, %slot))
    }
    named_barrier_arrive(barrier=2, num_warpgroups=2)
    %any = map(fn="gt", args=(%stop, %zero))
    consumer_release(slot=%last, pred=%any)

The tensor cores then have the next products before the last ones are done. Half of an iteration's
products, by blocks of 64 rows, are started in front of the release, the others behind it. In
ping-pong the next partition's products queue up behind this one's last. A ring that is too short
for the slots of two iterations gives them back at once.

**Products of fp8 that are deeper than their sums may be** (`Schedule.precise_every`) are started in
pieces of what they sum over, each with accumulators of its own: the tensor cores have the next
piece while one is added in f32, and a slot of several lines is waited for once.

Before:
    %sum = contract(a=%a, b=%b)
    consumer_release(slot=%slot)
    %total = map(fn="add", args=(%before, %sum))
After:
    %sum1 = contract(a=%a, b=%b, depth=(0, 128))
    commit_products()
    %sum2 = contract(a=%a, b=%b, depth=(128, 256))
    commit_products()
    %before1 = map(fn="add", args=(%before, %sum1))
    materialize(values=(%before1,))
    consumer_release(slot=%slot)
    %total = map(fn="add", args=(%before1, %sum2))

512 x 7168 x 18432 by 128 x 112 takes 111 us by two lines, 117 by one, 128 x 4096 x 14336 by 64 x 64
22.2 and 26.9 (H200).

**A loop whose products are made of computed operands** computes the next iteration's operands while
the tensor cores work on this one's products.

Before:
    %acc5, %top5 = for_range(index=%t, start=%c0, stop=%size_T, step=%c128, ...) {
      %s = contract(a=%q, b=%k)                          (first link)
      ... %p, %shrink, %top2 of %s and %top1 ...
      %scaled = map(fn="mul", args=(%acc1, %shrink))
      %acc2 = contract(a=%p, b=%v, acc=%scaled)          (last link)
      yield(values=(%acc2, %top2))
    }
After:
    %p0, %scaled0, %top0 = if(cond=(%c0 < %size_T)) { ... of the first iteration ... }
    %acc5, ... = for_range(index=%t, ..., args=(%scaled1, %top1, %p1)) {
      ... = if(cond=(%t + %c128 < %size_T)) {
        %s2 = contract(a=%q, b=%k2)                      (of the next iteration)
        commit_products()
        %acc2 = contract(a=%p1, b=%v, acc=%scaled1)
        commit_products()
        ... %p2, %shrink2, %top2 of %s2 and %top1 ...
        %scaled2 = map(fn="mul", args=(%acc2, %shrink2))
        yield(values=(%scaled2, %top2, %p2))
      } {
        %acc2 = contract(a=%p1, b=%v, acc=%scaled1)
        yield(values=(%acc2, %top1, %p1))
      }
      yield(...)
    }

It has two stages. The first makes the operands of
an iteration, by products of their own or of what is loaded; the second multiplies them. The second
stage of an iteration runs beside the first one of the next: products are started as soon as what
they read is there, first those that need nothing but slots, and waited for where their results are
read. What stands between the stages is carried in registers: the computed operand, and the sum that
it is added to, once that is scaled.

With `Schedule.order_barriers` consumers who share a tile start these products one after another:
each waits for the one in front before its products of an iteration, and hands over behind them, so
that one makes operands while another's products run (`lowering/order_barriers.py`).

A loop with computed operands is left as it is if its first stage has no products, depends on what
its second one makes, or has loops.

Why here: on tiles, before stages and parities of slots are threaded through the loops.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from wsdsl.diagnostics import Finding, ScheduleError
from wsdsl.ir.barrier_ops import ForRange, NamedBarrierArrive
from wsdsl.ir.op import Kernel, Op, Region, Value, operands, results_of
from wsdsl.ir.pipeline_ops import AxisAt, CircularBuffer, CommitProducts, Materialize, Partition
from wsdsl.ir.slot_ops import ConsumerRelease
from wsdsl.ir.tile_ops import (
    Contract,
    Full,
    If,
    Reduce,
    Store,
    Yield,
)
from wsdsl.ir.types import Axis, Tile
from wsdsl.ir.walk import Namer, copy_region, walk, with_regions, yielded
from wsdsl.lowering.axes import axes_of, is_tile
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.loop_stages import PURE, LoopStages, is_scalar
from wsdsl.lowering.order_barriers import OrderBarriers
from wsdsl.lowering.precision import multiplies_fp8
from wsdsl.lowering.products_in_flight import InFlight, row_blocks
from wsdsl.lowering.promoted_products import promoted_in_pieces

NO_CHAIN = (
    "Schedule.order_barriers is True, and no loop has products of products that are in flight "
    "while something is made of others"
)


def schedule_products(kernel: Kernel) -> Kernel:
    builder = Builder(Namer.of(kernel))
    stored = {op.tensor for op in kernel.ops if isinstance(op, Store)}
    rings = {op.result: op for op in kernel.body if isinstance(op, CircularBuffer)}
    axes, every = axes_of(kernel), (kernel.schedule and kernel.schedule.precise_every) or 0

    def partition(own: Partition) -> Partition:
        blocks = {
            op: row_blocks(op, own, axes) for op in walk(own.body) if isinstance(op, Contract)
        }

        in_turn = OrderBarriers(builder, own) if own.order_barriers else None
        depths = {op: _depth(op, axes) for op in blocks if every and multiplies_fp8(op)}

        def region(block: Region) -> Region:
            block = promoted_in_pieces(block, depths, every, builder)
            with builder.region() as made:
                ahead = [*block]
                while ahead:
                    op = with_regions(ahead.pop(0), region)
                    stages = LoopStages.of(op, stored) if isinstance(op, ForRange) else None
                    kept = InFlight.of(op, rings) if isinstance(op, ForRange) else None
                    if stages is not None:
                        builder.loc = op.loc
                        _Pipelined(stages, builder, dict(kernel.sizes), in_turn).emit()
                    elif kept is not None:
                        # The next partition may start when the last products have been started.
                        order = [x for x in ahead[:1] if isinstance(x, NamedBarrierArrive)]
                        kept.emit(builder, blocks, order)
                        del ahead[: len(order)]
                    else:
                        builder.add(op)
            return tuple(made)

        body = region(own.body)
        if in_turn is not None and not in_turn.used:
            raise ScheduleError(Finding(NO_CHAIN, kernel.loc, "leave it out"))
        return dataclasses.replace(own, body=body if in_turn is None else in_turn.around(body))

    body = tuple(
        partition(op) if isinstance(op, Partition) and op.role == "compute" else op
        for op in kernel.body
    )
    return kernel if body == kernel.body else dataclasses.replace(kernel, body=body)


def _depth(op: Contract, axes: Mapping[str, Axis]) -> int:
    """Elements of a tile that a product sums over."""
    return max(axes[x].size for x in op.summed)


class _Pipelined:
    """Writes the loop of `stages` anew."""

    def __init__(
        self,
        stages: LoopStages,
        builder: Builder,
        sizes: dict[str, int],
        order: OrderBarriers | None,
    ) -> None:
        self.stages, self.builder, self.sizes, self.order = stages, builder, sizes, order
        self.loop, self.handed = stages.loop, yielded(stages.loop.body)

    def emit(self) -> None:
        b, loop, stages = self.builder, self.loop, self.stages
        some = b.map("lt", loop.start, loop.stop, wish="some")
        before = self.first_iteration(some)
        args = tuple(self.again(v) for v in (*loop.args, *stages.crossing))
        with b.region() as body:
            following = b.plus(loop.index, loop.step, "next")
            more = b.map("lt", following, loop.stop, wish="more")
            b.add(Yield(values=self.iteration(args, following, more), loc=loop.loc))
        beyond = tuple(self.again(v) for v in stages.crossing)
        b.add(
            dataclasses.replace(
                loop,
                result=(*loop.result, *beyond),
                init=before,
                args=args,
                body=tuple(body),
            )
        )

    def again(self, value: Value) -> Value:
        return Value(self.builder.namer.again(value.name), value.type)

    def copy(self, region: Region, swap: dict[Value, Value]) -> None:
        """Add the ops with new names for what they make, which `swap` then knows."""
        made = copy_region(region, self.builder.namer, swap)
        for old, new in zip(region, made, strict=True):
            swap |= dict(zip(results_of(old), results_of(new), strict=True))
        self.builder.ops += made

    def carried(self, swap: dict[Value, Value], sums: dict[int, Value]) -> tuple[Value, ...]:
        """What the next iteration is given: its variables, `sums` by their place, and what crosses
        the stages.
        """
        own = [sums[n] if n in sums else swap.get(v, v) for n, v in enumerate(self.handed)]
        return (*own, *(swap[v] for v in self.stages.crossing))

    def first_iteration(self, some: Value) -> tuple[Value, ...]:
        """The first stage of the first iteration, if there is one."""
        b, loop, stages = self.builder, self.loop, self.stages
        swap = {loop.index: loop.start} | dict(zip(loop.args, loop.init, strict=True))
        with b.region() as then:
            self.copy(stages.first, swap)
            self.copy(stages.scaling, swap)
            sums = {n: swap[v] for n, v in stages.sums.items()}
            b.add(Yield(values=self.carried(swap, sums), loc=loop.loc))
        with b.region() as orelse:
            nothing = [self.zeros(v) for v in stages.crossing]
            b.add(Yield(values=(*loop.init, *nothing), loc=loop.loc))
        made = tuple(self.again(v) for v in (*loop.args, *stages.crossing))
        branch = If(cond=some, result=made, then=tuple(then), orelse=tuple(orelse), loc=loop.loc)
        b.add(branch)
        return made

    def zeros(self, value: Value) -> Value:
        b, kind = self.builder, value.type
        assert isinstance(kind, Tile)
        zero = b.constant(0.0 if kind.dtype.is_float else 0, Tile(kind.dtype), "zero")
        return b.add(Full(result=b.value("zeros", kind), value=zero, loc=b.loc)).result

    def of_this(self, args: tuple[Value, ...]) -> dict[Value, Value]:
        """What the second stage's values are called in the new loop."""
        swap = dict(zip((*self.loop.args, *self.stages.crossing), args, strict=True))
        return swap | {v: args[n] for n, v in self.stages.sums.items()}

    def axes(self, swap: dict[Value, Value], inside: bool = False) -> None:
        """Where the tiles of an iteration begin. All but the last one lie `inside`."""
        axes = [op for op in self.stages.first if isinstance(op, AxisAt)]
        whole: dict[Op, Op] = {}
        if inside:
            whole |= {op: dataclasses.replace(op, inside=True, stop=None) for op in axes}
        self.copy(tuple(whole.get(op, op) for op in self.needed((*axes,))), swap)

    def start(self, ops: Region, swap: dict[Value, Value], first: bool) -> None:
        """Start products; `first`: in their iteration, for which consumers follow one another."""
        at = next(i for i, op in enumerate(ops) if isinstance(op, Contract))
        self.copy(ops[:at], swap)
        if first and self.order is not None:
            self.order.wait()
        self.copy(ops[at:], swap)
        self.builder.add(CommitProducts(loc=self.builder.loc))

    def last_products(self, swap: dict[Value, Value], alone: bool = False) -> Region:
        """Start the second stage's products; returns what it does behind them. `alone`: there is no
        next iteration, whose products were started before, and whose tile is a whole one.
        """
        self.axes(swap, inside=not alone)
        second = self.stages.second
        at = max(i for i, op in enumerate(second) if isinstance(op, Contract)) + 1
        self.start(second[:at], swap, first=alone)
        if self.order is not None:
            self.order.hand_over()
        return second[at:]

    def needed(self, ops: Region) -> Region:
        """The ops, and those of the first stage that they need."""
        wanted = {v for op in ops for v in operands(op)}
        found = {*ops}
        for op in reversed(self.stages.first):
            if wanted & {*results_of(op)} or op in found:
                found.add(op)
                wanted |= {*operands(op)}
        return tuple(op for op in self.stages.first if op in found)

    def first_stage(self, rest: Region, following: Value, swap: dict[Value, Value]) -> None:
        """What the first stage does with its products' results. Where the last tile may reach over
        the end, it is told apart from others, which need no masks. Operands themselves are made
        last: they are in the registers that products in flight read.
        """
        b, stages = self.builder, self.stages
        releases = tuple(op for op in rest if isinstance(op, ConsumerRelease))
        # Slots that products alone read; others are given back when threads have read them.
        reading = {v for op in rest if op not in releases for v in (*operands(op), *results_of(op))}
        given_back = tuple(op for op in releases if op.slot not in reading)
        makers = tuple(op for op in rest if {*results_of(op)} & {*stages.crossing})
        scalars = tuple(op for op in rest if isinstance(op, PURE) and is_scalar(op))
        apart = (*releases, *makers, *scalars)
        # Where tiles begin is said anew, by `axes`, wherever it is told apart.
        middle = tuple(op for op in rest if not (op in apart or isinstance(op, AxisAt)))
        used = {v for op in (*stages.scaling, *makers) for v in operands(op)} | {*self.handed}
        wanted = [v for op in middle for v in results_of(op) if v in used]
        self.copy((*given_back, *scalars), swap)
        if not self.is_masked(middle):
            self.axes(swap)
            self.copy(middle, swap)
            tiles = tuple(swap[v] for v in wanted if is_tile(v))
            b.add(Materialize(values=tiles, loc=b.loc))
        else:
            beyond = b.plus(following, self.loop.step, "beyond")
            whole = b.map("le", beyond, self.loop.stop, wish="whole")
            branches: list[Region] = []
            for inside in (True, False):
                own = dict(swap)
                with b.region() as ops:
                    self.axes(own, inside)
                    self.copy(middle, own)
                    b.add(Yield(values=tuple(own[v] for v in wanted), loc=b.loc))
                branches.append(tuple(ops))
            made = tuple(self.again(v) for v in wanted)
            b.add(If(cond=whole, result=made, then=branches[0], orelse=branches[1], loc=b.loc))
            swap |= dict(zip(wanted, made, strict=True))
        self.axes(swap)
        self.copy(makers, swap)
        self.copy(tuple(op for op in releases if op not in given_back), swap)

    def is_masked(self, region: Region) -> bool:
        """Whether something in it minds where the dimension ends."""
        kinds = [op.result.type for op in self.stages.first if isinstance(op, AxisAt)]
        reduced = {op.axis for op in region if isinstance(op, Reduce)}
        return any(
            isinstance(kind, Axis)
            and kind.name in reduced
            and self.sizes.get(kind.dim, 1) % kind.size
            for kind in kinds
        )

    def iteration(
        self, args: tuple[Value, ...], following: Value, more: Value
    ) -> tuple[Value, ...]:
        b, loop, stages = self.builder, self.loop, self.stages
        early = self.needed(tuple(op for op in stages.first if isinstance(op, Contract)))
        with b.region() as then:
            swap = dict(zip(loop.args, args, strict=False)) | {loop.index: following}
            b.loc = loop.loc
            self.start(early, swap, first=True)
            second = self.of_this(args)
            behind = self.last_products(second)
            self.first_stage(tuple(op for op in stages.first if op not in early), following, swap)
            self.copy(behind, second)
            summed = {n: second.get(self.handed[n], self.handed[n]) for n in stages.sums}
            swap |= {loop.args[n]: v for n, v in summed.items()}
            self.copy(stages.scaling, swap)
            sums = {n: swap[v] for n, v in stages.sums.items()}
            b.add(Yield(values=self.carried(swap, sums), loc=loop.loc))
        with b.region() as orelse:
            second = self.of_this(args)
            self.copy(self.last_products(second, alone=True), second)
            own = list(args)
            for n in stages.sums:
                own[n] = second[self.handed[n]]
            b.add(Yield(values=tuple(own), loc=loop.loc))
        made = tuple(self.again(v) for v in args)
        b.add(If(cond=more, result=made, then=tuple(then), orelse=tuple(orelse), loc=loop.loc))
        return made
