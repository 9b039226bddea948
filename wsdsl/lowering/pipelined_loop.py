"""A loop of two stages, which run beside each other: see `schedule_products`."""

from collections.abc import Callable, Iterable
from functools import partial, reduce

from wsdsl.ir import ops
from wsdsl.ir.op import Makers, Op, Region, Value, operands, results_of, with_fields
from wsdsl.ir.rewriter import makers, yielded
from wsdsl.ir.types import Tile
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.loop_stages import LoopStages, Masks, is_scalar
from wsdsl.lowering.order_barriers import OrderBarriers

Emitted = Callable[[], tuple[Value, ...]]
"""Add the ops, and return the values that they yield."""


class PipelinedLoop:
    """Writes the loop of `stages` anew."""

    def __init__(
        self,
        stages: LoopStages,
        builder: Builder,
        sizes: dict[str, int],
        order: OrderBarriers | None,
        made: Makers,
    ) -> None:
        """`made`: which op makes what of the partition."""
        self.stages, self.builder, self.sizes, self.order = stages, builder, sizes, order
        self.loop, self.handed = stages.loop, yielded(stages.loop.body)
        self.masks = Masks(stages, builder, made)
        axes = (op for op in stages.first if isinstance(op, ops.AxisAt))
        self.walked = tuple(op for op in axes if self.walks(op))

    def walks(self, op: ops.AxisAt) -> bool:
        """Whether the loop goes from tile to tile of the axis. A loop over work items does not, nor
        does an axis that begins with the next iteration's tile.
        """
        at = self.masks.made.get(op.start)
        places = at.args if isinstance(at, ops.Map) and at.fn in ("add", "min") else (op.start,)
        return self.loop.index in places and self.loop.step not in places

    def whole(self, op: Op) -> Op:
        """The op in an iteration whose tile lies inside."""
        return with_fields(op, inside=True, stop=None) if op in self.walked else op

    def emit(self) -> None:
        b, loop, stages = self.builder, self.loop, self.stages
        before = self.first_iteration(b.map("lt", loop.start, loop.stop, wish="some"))
        args = tuple(self.again(v) for v in (*loop.args, *stages.crossing))
        with b.region() as body:
            following = b.plus(loop.index, loop.step, "next")
            more = b.map("lt", following, loop.stop, wish="more")
            b.add(ops.Yield(values=self.iteration(args, following, more), loc=loop.loc))
        beyond = tuple(self.again(v) for v in stages.crossing)
        carried = dict(result=(*loop.result, *beyond), init=before, args=args)
        b.add(with_fields(loop, **carried, body=tuple(body)))

    def again(self, value: Value) -> Value:
        return Value(self.builder.namer.again(value.name), value.type)

    def carried(self, swap: dict[Value, Value], sums: dict[int, Value]) -> tuple[Value, ...]:
        """What the next iteration is given: its variables, `sums` by their place, and what crosses
        the stages.
        """
        own = [sums[n] if n in sums else swap.get(v, v) for n, v in enumerate(self.handed)]
        return (*own, *(swap[v] for v in self.stages.crossing))

    def first_iteration(self, some: Value) -> tuple[Value, ...]:
        """The first stage of the first iteration, if there is one."""
        loop, stages = self.loop, self.stages

        def first(whole: bool) -> tuple[Value, ...]:
            swap = {loop.index: loop.start} | dict(zip(loop.args, loop.init, strict=True))
            self.axes(swap, inside=whole)
            self.copy_seen(
                (op for op in stages.first if not isinstance(op, ops.AxisAt)), swap, whole
            )
            self.builder.copy(stages.scaling, swap)
            return self.carried(swap, {n: swap[v] for n, v in stages.sums.items()})

        def nothing() -> tuple[Value, ...]:
            return (*loop.init, *(self.zeros(v) for v in stages.crossing))

        return self.either(some, lambda: self.by_masks(loop.start, first), nothing)

    def copy_seen(self, members: Iterable[Op], swap: dict[Value, Value], whole: bool) -> None:
        """Add copies of the ops; of a whole tile without masks."""
        for op in members:
            if whole and op in self.masks.ops:
                swap |= self.masks.seen(op, swap)
            else:
                self.builder.copy((op,), swap)

    def by_masks(
        self, start: Value, emitted: Callable[[bool], tuple[Value, ...]]
    ) -> tuple[Value, ...]:
        """Once for a tile that needs no masks, and once for others, if there are such."""
        whole = self.is_whole(start)
        if whole is None:
            return emitted(False)
        return self.either(whole, partial(emitted, True), partial(emitted, False))

    def zeros(self, value: Value) -> Value:
        b, kind = self.builder, value.as_tile
        zero = b.constant(0.0 if kind.dtype.is_float else 0, Tile(kind.dtype), "zero")
        return b.add(ops.Full(result=b.value("zeros", kind), value=zero, loc=b.loc)).result

    def of_this(self, args: tuple[Value, ...]) -> dict[Value, Value]:
        """What the second stage's values are called in the new loop."""
        swap = dict(zip((*self.loop.args, *self.stages.crossing), args, strict=True))
        return swap | {v: args[n] for n, v in self.stages.sums.items()}

    def axes(self, swap: dict[Value, Value], inside: bool = False) -> None:
        """Where the tiles of an iteration begin. All but the last one lie `inside`."""
        axes = [op for op in self.stages.first if isinstance(op, ops.AxisAt)]
        needed = self.needed((*axes,))
        self.builder.copy(tuple(map(self.whole, needed)) if inside else needed, swap)

    def start(self, members: Region, swap: dict[Value, Value], first: bool) -> None:
        """Start products; `first`: in their iteration, for which consumers follow one another."""
        at = next(i for i, op in enumerate(members) if isinstance(op, ops.Contract))
        self.builder.copy(members[:at], swap)
        if first and self.order is not None:
            self.order.wait()
        self.builder.copy(members[at:], swap)
        self.builder.add(ops.CommitProducts(loc=self.builder.loc))

    def last_products(self, swap: dict[Value, Value], alone: bool, inside: bool) -> Region:
        """Start the second stage's products; returns what it does behind them. `alone`: there is no
        next iteration, whose products were started before.
        """
        self.axes(swap, inside=inside)
        second = self.stages.second
        at = max(i for i, op in enumerate(second) if isinstance(op, ops.Contract)) + 1
        self.start(second[:at], swap, first=alone)
        if self.order is not None:
            self.order.hand_over()
        return second[at:]

    def needed(self, members: Region) -> Region:
        """Return the ops, and the ops of the first stage that they need."""
        found = {*members, *makers(self.stages.first, (v for op in members for v in operands(op)))}
        return tuple(op for op in self.stages.first if op in found)

    def first_stage(self, rest: Region, swap: dict[Value, Value], whole: bool) -> None:
        """What the first stage does with its products' results. Operands themselves are made last:
        they are in the registers that products in flight read.
        """
        b, stages = self.builder, self.stages
        releases = tuple(op for op in rest if isinstance(op, ops.ConsumerRelease))
        # Slots that products alone read; others are given back when threads have read them.
        reading = {v for op in rest if op not in releases for v in (*operands(op), *results_of(op))}
        given_back = tuple(op for op in releases if op.slot not in reading)
        makers = tuple(op for op in rest if {*results_of(op)} & {*stages.crossing})
        scalars = tuple(op for op in rest if op.pure and is_scalar(op))
        apart = (*releases, *makers, *scalars)
        # Where tiles begin is said anew, by `axes`.
        middle = tuple(op for op in rest if not (op in apart or isinstance(op, ops.AxisAt)))
        used = {v for op in (*stages.scaling, *makers) for v in operands(op)} | {*self.handed}
        wanted = [v for op in middle for v in results_of(op) if v in used]
        self.builder.copy((*given_back, *scalars), swap)
        self.axes(swap, inside=whole)
        self.copy_seen(middle, swap, whole)
        b.add(ops.Materialize(values=tuple(swap[v] for v in wanted if v.is_tile), loc=b.loc))
        self.builder.copy(makers, swap)
        self.builder.copy(tuple(op for op in releases if op not in given_back), swap)

    def is_clipped(self) -> bool:
        """Whether something in the first stage minds where the dimension ends: a reduction, or what
        products sum over; the latter asks for itself where nothing is masked by an order.
        """
        reduced = {op.axis for op in self.stages.first if isinstance(op, ops.OVER_AXIS)}
        kinds = [(op.result.as_axis, op.is_clipped or op.shifted) for op in self.walked]
        return any(
            (self.masks.ops or kind.name in reduced)
            and (apart or self.sizes.get(kind.dim, 1) % kind.size > 0)
            for kind, apart in kinds
        )

    def iteration(
        self, args: tuple[Value, ...], following: Value, more: Value
    ) -> tuple[Value, ...]:
        """A copy of it for each case: the next tile is a whole one, without masks; there is another
        one; there is none. Each is one piece, so that all of it can be scheduled together.
        """

        def last(inside: bool) -> tuple[Value, ...]:
            second = self.of_this(args)
            self.builder.copy(self.last_products(second, alone=True, inside=inside), second)
            summed = {n: second[self.handed[n]] for n in self.stages.sums}
            return tuple(summed.get(n, arg) for n, arg in enumerate(args))

        def ended() -> tuple[Value, ...]:
            if not self.is_clipped():
                return last(inside=False)
            inside = self.is_inside(self.loop.index)
            return self.either(inside, partial(last, True), partial(last, False))

        ongoing = partial(self.ongoing, args, following)
        return self.either(more, lambda: self.by_masks(following, ongoing), ended)

    def is_inside(self, start: Value) -> Value:
        """Whether the tile that begins there ends in front of the loop's end."""
        b = self.builder
        return b.map("le", b.plus(start, self.loop.step, "beyond"), self.loop.stop, wish="inside")

    def is_whole(self, following: Value) -> Value | None:
        """Whether the tile that begins at `following` needs no mask; None if none has one."""
        b, tests = self.builder, list[Value]()
        if self.is_clipped():
            tests.append(self.is_inside(following))
        starts = {self.loop.index: following}
        own = tuple(op for op in self.stages.first if isinstance(op, ops.AxisAt))
        self.builder.copy(tuple(op for op in self.needed(own) if op not in own), starts)
        tests += self.masks.tests(starts)
        both = partial(b.map, "and", wish="whole")
        return reduce(both, tests) if tests else None

    def either(self, cond: Value, then: Emitted, orelse: Emitted) -> tuple[Value, ...]:
        b, bodies = self.builder, list[Region]()
        for emitted in (then, orelse):
            with b.region() as body:
                b.add(ops.Yield(values=emitted(), loc=self.loop.loc))
            bodies.append(tuple(body))
        made = tuple(self.again(v) for v in (*self.loop.args, *self.stages.crossing))
        b.add(ops.If(cond=cond, result=made, then=bodies[0], orelse=bodies[1], loc=self.loop.loc))
        return made

    def ongoing(self, args: tuple[Value, ...], following: Value, whole: bool) -> tuple[Value, ...]:
        """The second stage beside the next iteration's first one."""
        loop, stages = self.loop, self.stages
        early = self.needed(tuple(op for op in stages.first if isinstance(op, ops.Contract)))
        swap = dict(zip(loop.args, args, strict=False)) | {loop.index: following}
        self.start(early, swap, first=True)
        second = self.of_this(args)
        behind = self.last_products(second, alone=False, inside=True)
        self.first_stage(tuple(op for op in stages.first if op not in early), swap, whole)
        self.builder.copy(behind, second)
        summed = {n: second.get(self.handed[n], self.handed[n]) for n in stages.sums}
        swap |= {loop.args[n]: v for n, v in summed.items()}
        self.builder.copy(stages.scaling, swap)
        return self.carried(swap, {n: swap[v] for n, v in stages.sums.items()})


class MaskedLoop(PipelinedLoop):
    """A loop whose threads take sums of products from tensor memory, all of its body one stage: its
    body once for tiles that need no masks, and once for others (`loop_stages.Masks`).

    Before:
        for_range(index=%t, ...) {
          %s: f32[q, t] = slot_sum(...)
          %seen = map(fn="where", args=(%test, %s, %neutral))
          ...
        }
    After:
        for_range(index=%t, ...) {
          %whole: bool = ... whether the test holds for all elements, and all are there ...
          if(cond=%whole) { ... with %s for %seen ... } { ... as before ... }
        }
    """

    def emit(self) -> None:
        b, loop = self.builder, self.loop
        with b.region() as body:
            whole = self.is_whole(loop.index)
            if whole is not None:
                made = self.either(whole, partial(self.tile, True), partial(self.tile, False))
                b.add(ops.Yield(values=made, loc=loop.loc))
        b.add(loop if whole is None else with_fields(loop, body=tuple(body)))

    def tile(self, whole: bool) -> tuple[Value, ...]:
        swap = dict[Value, Value]()
        members = self.stages.first
        # In their order: what stands behind an `axis_at` is of that tile.
        self.copy_seen(map(self.whole, members) if whole else members, swap, whole)
        return self.carried(swap, {})
