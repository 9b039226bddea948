"""Have the CTAs of a cluster wait for each other once for several reductions of their rows.

Before:
    %most: f32[m] = reduce(fn="max", x=%x, axis="n", ctas=2)
    %less: f32[m, n] = map(fn="sub", args=(%x, %most))
    %e: f32[m, n] = map(fn="exp", args=(%less,))
    %total: f32[m] = reduce(fn="add", x=%e, axis="n", ctas=2)
After:
    %own: f32[m] = reduce(fn="max", x=%x, axis="n")
    %none: bool[m] = map(fn="eq", args=(%own, %minus_inf))
    %finite: f32[m] = map(fn="where", args=(%none, %zero, %own))
    %less_1: f32[m, n] = map(fn="sub", args=(%x, %finite))
    %e_1: f32[m, n] = map(fn="exp", args=(%less_1,))
    %part: f32[m] = reduce(fn="add", x=%e_1, axis="n")
    %own_0, %own_1, %part_0, %part_1 = cluster_allgather(x=(%own, %part), axis="n", ctas=2)
    %most: f32[m] = map(fn="max", args=(%own_0, %own_1))
    ... %total = %part_0 * exp(%own_0 - %most) + %part_1 * exp(%own_1 - %most) ...

`row_rounds.py` says which. Each CTA takes its own part of what a sum reads of the row, and all of
them put the parts together in the order of their ranks. What a CTA takes away must be finite, since
all that it has may be -inf; by how much its sum is off is then found with what it really was, so
that a row of -inf gives what it gave before. CTAs that have nothing of a row are left out. A
function of the row that is also asked for elsewhere is not computed again, but multiplied likewise.

Why here: clusters are settled, and rows are straight-line code.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence

from wsdsl.ir.op import Kernel, Op, Region, Value, operands, results_of, with_fields
from wsdsl.ir.ops import Block, Cast, ClusterAllgather, End, ForTiles, Full, Map, Reduce
from wsdsl.ir.rewriter import Namer, replace_operands, used_inside, uses, with_regions
from wsdsl.ir.types import BOOL, F32, Tile
from wsdsl.lowering import row_rounds
from wsdsl.lowering.axes import axes_of
from wsdsl.lowering.builder import INT, Builder
from wsdsl.lowering.passes.approximate_math import SUMMED_BITS

LOG2_E = math.log2(math.e)


def join_exchanges(kernel: Kernel) -> Kernel:
    shared = {op.axis for op in kernel.of(Reduce) if op.ctas > 1}
    if not shared:
        return kernel
    counts = Counter(uses(kernel.body))
    builder = Builder(Namer.of(kernel))

    def joined(region: Region) -> Region:
        made = tuple(with_regions(op, joined) for op in region)
        for found in row_rounds.rounds(kernel, region, shared):
            made = _Joining(kernel, found, counts, builder).region(made)
        return made

    return kernel.with_body(joined(kernel.body))


class _Joining:
    """Of one round."""

    def __init__(
        self, kernel: Kernel, found: row_rounds.Round, counts: Counter[Value], builder: Builder
    ) -> None:
        self.round, self.counts, self.builder = found, counts, builder
        self.made, first = kernel.definers, found.members[0]
        axis = axes_of(kernel)[first.axis]
        size = dict(kernel.sizes)[axis.dim]
        self.elements = row_rounds.elements_of_each(size, axis.size, first.ctas)
        self.index = next(o.index for o in kernel.of(ForTiles) if o.index.type == axis)
        self.own: dict[Value, Value] = {}
        """What the CTA itself has reduced, by the result that all have."""
        self.parts: dict[Value, tuple[Value, ...]] = {}
        """The same of all CTAs."""
        self.terms: dict[Value, tuple[Value, row_rounds.Exponential]] = {}
        """What the CTA itself has of a summand that is also asked for elsewhere."""

    def region(self, region: Region) -> Region:
        waiting, last = list[Op](), self.round.members[-1]
        members = {op.result: op for op in self.round.members}
        tainted, done = {*members}, False
        with self.builder.region() as ops:
            for op in region:
                self.builder.loc = op.loc
                result = results_of(op)
                if not done and result and result[0] in members:
                    assert isinstance(op, Reduce)
                    self.reduce(op)
                    waiting.append(op)
                    if op.result == last.result:
                        self.exchange(waiting)
                        done = True
                elif not done and tainted & {*operands(op), *used_inside(op)}:
                    waiting.append(op)
                    tainted |= row_rounds.made_by(op)
                else:
                    self.builder.add(op)
        return tuple(ops)

    def reduce(self, op: Reduce) -> None:
        """By the CTA itself."""
        x, following = op.x, self.round.followers.get(op.result)
        match following:
            case row_rounds.Exponential():
                x = self.own_exponential(op, following)
            case row_rounds.Squares():
                x = self.own_squares(op, following)
            case None:
                pass
        own = self.builder.value(f"{op.result.name}_own", op.result.type)
        self.builder.add(with_fields(op, result=own, x=x, ctas=1))
        self.own[op.result] = own

    def exchange(self, waiting: Sequence[Op]) -> None:
        b, first = self.builder, self.round.members[0]
        sent = tuple(self.own[op.result] for op in self.round.members)
        got = tuple(b.value(x.name, x.type) for x in sent for _ in range(first.ctas))
        op = ClusterAllgather(result=got, x=sent, axis=first.axis, ctas=first.ctas, loc=first.loc)
        b.add(op)
        for n, member in enumerate(self.round.members):
            self.parts[member.result] = op.of(n)
        for op in waiting:
            b.loc = op.loc
            result = results_of(op)
            if result and result[0] in self.own:
                assert isinstance(op, Reduce)
                self.combine(op)
            elif result and result[0] in self.terms:
                own, following = self.terms[result[0]]
                factor = self.factor(following, self.own[following.of.result])
                b.add(Map(result=result[0], fn="mul", args=(own, factor), loc=op.loc))
            else:
                b.add(op)

    def combine(self, op: Reduce) -> None:
        """What all have, of those CTAs that have elements."""
        following, parts = self.round.followers.get(op.result), self.parts[op.result]
        held = [rank for rank, num in enumerate(self.elements) if num]
        found = {rank: parts[rank] for rank in held}
        match following:
            case row_rounds.Exponential():
                for rank in held:
                    factor = self.factor(following, self.parts[following.of.result][rank])
                    found[rank] = self.row("mul", found[rank], factor)
            case row_rounds.Squares():
                for rank in held:
                    num = self.number(self.elements[rank])
                    mean = self.row("div", self.parts[following.of.result][rank], num)
                    less = self.row("sub", mean, following.mean)
                    rest = self.row("mul", self.row("mul", less, less), num)
                    found[rank] = self.row("add", found[rank], rest)
            case None:
                pass
        left = [found[rank] for rank in held]
        while len(left) > 2:
            odd = left[len(left) & ~1 :]
            left = [self.row(op.fn, x, y) for x, y in zip(left[::2], left[1::2], strict=False)]
            left += odd
        args = tuple(left) if len(left) == 2 else (left[0], left[0])
        fn = op.fn if len(left) == 2 else "max"
        self.builder.add(Map(result=op.result, fn=fn, args=args, loc=op.loc))

    def own_exponential(self, op: Reduce, following: row_rounds.Exponential) -> Value:
        b, own = self.builder, self.own[following.of.result]
        f = following.less.args[1]
        taken = self.copied(f, {following.of.result: own})
        kind = own.as_tile
        none = b.map("eq", own, self.number(-math.inf), type=Tile(BOOL, kind.axes), wish="none")
        args = none, self.number(0.0), taken
        finite = b.map("where", *args, type=taken.type, wish="finite")
        if self.by_exp2(following):
            made = self.row_exp2(op, following, finite)
        else:
            made = self.copied(op.x, {f: finite})
        if self.counts[op.x] > 1:
            self.terms[op.x] = made, following
        return made

    def by_exp2(self, following: row_rounds.Exponential) -> bool:
        """Whether 2 ** (x log2 e - c) will do, which takes an instruction less: c is a rounded
        multiple of the maximum, and just this is then taken from what all take away.
        """
        (step, *scaled) = following.steps
        return step.fn == "exp" and step.bits <= SUMMED_BITS and not scaled

    def row_exp2(self, op: Reduce, following: row_rounds.Exponential, finite: Value) -> Value:
        b, (x, _), kind = self.builder, following.less.args, op.x.type
        back = self.row("mul", finite, self.number(-LOG2_E))
        power = b.map("fma", x, self.number(LOG2_E), back, type=kind, wish="power")
        return b.map("exp2", power, type=kind, wish=op.x.name)

    def factor(self, following: row_rounds.Exponential, own: Value) -> Value:
        """What the sum is multiplied by of a CTA whose maximum this is."""
        less = following.less
        if self.by_exp2(following):
            taken = self.row("mul", own, self.number(LOG2_E))
            power = self.row("fma", less.args[1], self.number(-LOG2_E), taken)
            return self.row("exp2", power)
        value, found = less.result, self.row("sub", own, less.args[1])
        for step in reversed(following.steps):
            args = tuple(found if v == value else v for v in step.args)
            value, kind = step.result, Tile(F32, own.as_tile.axes)
            found = self.builder.value("factor", kind)
            # There are few of them: they need not be relaxed.
            self.builder.add(Map(result=found, fn=step.fn, args=args, loc=step.loc))
        return found

    def own_squares(self, op: Reduce, following: row_rounds.Squares) -> Value:
        own = self.own[following.of.result]
        mean = self.row("div", own, self.own_elements())
        return self.copied(op.x, {following.mean: mean})

    def own_elements(self) -> Value:
        """Of this CTA; 1 where it has none, and gives nothing."""
        b, size = self.builder, self.index.as_axis.size
        if all(num == size for num in self.elements):
            return self.number(size)
        end = b.add(End(result=b.value("end", INT), axis=self.index, loc=b.loc)).result
        begin = Block(result=b.value("begin", INT), axis=self.index, size=1, loc=b.loc)
        held = b.map("sub", end, b.add(begin).result, wish="held")
        held = b.map("max", held, b.integer(1), wish="held")
        return b.add(Cast(result=b.value("elements", Tile(F32)), x=held, loc=b.loc)).result

    def copied(self, value: Value, swap: dict[Value, Value]) -> Value:
        """The value again, with others in the place of some of those that it is made of."""
        if value in swap:
            return swap[value]
        if value not in self.round.tainted:
            return value
        op = self.made[value]
        new = {v: self.copied(v, swap) for v in operands(op)}
        copy = self.builder.value(value.name, value.type)
        assert isinstance(op, Map | Cast | Full)
        self.builder.add(dataclasses.replace(replace_operands(op, new), result=copy))
        swap[value] = copy
        return copy

    def row(self, fn: str, *args: Value) -> Value:
        return self.builder.map(fn, *args, type=args[0].type, wish="part")

    def number(self, value: float) -> Value:
        return self.builder.constant(float(value), Tile(F32))
