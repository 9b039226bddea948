"""Carried variables of loops, by kind: scalars and states, tiles as fragments, and accumulators."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from wsdsl.diagnostics import Loc
from wsdsl.ir.op import Region, Value, with_fields
from wsdsl.ir.ops import Contract, ConvertLayout, ForRange, Full, Load, Lookup, MbarrierArrive
from wsdsl.ir.rewriter import uses, yielded
from wsdsl.ir.types import Fragment, State, Tile, Type
from wsdsl.lowering.builder import FLAG, Builder
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.products import Products
from wsdsl.lowering.register_tiles import Accumulated, RegisterTile, held, narrow
from wsdsl.lowering.split_k_rules import grows


def accumulated_in(body: Region, last: Value) -> bool:
    """Whether a value that a loop's body yields is the result of MMAs that add to a tile."""
    for op in body:
        match op:
            case Contract(result=made) if made == last:
                return True
            case ForRange(result=made) if last in made:
                return accumulated_in(op.body, yielded(op.body)[made.index(last)])
            case _:
                pass
    return False


def stays_with_products(loop: ForRange, arg: Value, last: Value) -> bool:
    """Whether a carried variable stays with the tensor cores. It does not where a body reads what
    it is, as to scale it, rather than have products add to it.
    """
    read = arg in uses(loop.body) and not _goes_on(loop.body, arg)
    return accumulated_in(loop.body, last) and not read


def _goes_on(body: Region, arg: Value) -> bool:
    """Whether products add to it, in the body or in a loop of it."""
    for op in body:
        if isinstance(op, Contract) and op.acc == arg:
            return True
        inner = op.args[op.init.index(arg)] if isinstance(op, ForRange) and arg in op.init else None
        if isinstance(op, ForRange) and inner is not None and _goes_on(op.body, inner):
            return True
    return False


class Lowering(Protocol):
    """The interface of the pass that carried variables use."""

    builder: Builder
    context: PartitionContext
    products: Products
    env: dict[Value, RegisterTile]
    sums: dict[Value, Accumulated]

    def addend(self, value: Value | None, kind: Type) -> Accumulated: ...
    def pieces(self, value: Value) -> RegisterTile: ...
    def scalar(self, value: Value) -> Value: ...


@dataclass
class Carried:
    """One variable: `init` and `args` as the lowered loop carries them."""

    init: tuple[Value, ...]
    arg: Value
    last: Value
    made: Value
    args: tuple[Value, ...] = ()

    def bind(self, lowering: Lowering, value: Value) -> tuple[Value, ...]:
        """Bind the value to its lowered form, from here on."""
        raise NotImplementedError

    def enter(self, lowering: Lowering) -> None:
        """At the start of the body: bind the argument."""
        self.args = self.bind(lowering, self.arg)

    def hand_on(self, lowering: Lowering) -> tuple[Value, ...]:
        """At the end of the body: the next iteration's values."""
        raise NotImplementedError

    def leave(self, lowering: Lowering) -> tuple[Value, ...]:
        """The loop's results."""
        return self.bind(lowering, self.made)

    def after(self, lowering: Lowering) -> None:
        """Finish after the loop."""


def carrying(
    loop: ForRange, carried: Sequence[Carried], results: Sequence[tuple[Value, ...]], body: Region
) -> ForRange:
    """The loop as it carries the variables, which leave it as `results`."""
    return with_fields(
        loop,
        result=tuple(v for values in results for v in values),
        init=tuple(v for var in carried for v in var.init),
        args=tuple(v for var in carried for v in var.args),
        body=body,
    )


class CarriedScalar(Carried):
    def bind(self, lowering: Lowering, value: Value) -> tuple[Value, ...]:
        return (value,)

    def hand_on(self, lowering: Lowering) -> tuple[Value, ...]:
        return (lowering.scalar(self.last),)


class CarriedExchange(Carried):
    """Which buffer CTAs write next by which they share rows."""

    @classmethod
    def of(cls, lowering: Lowering, loc: Loc | None) -> Carried:
        state = lowering.context.shared_rows.next_state(loc)
        return cls((state,), state, state, state)

    def bind(self, lowering: Lowering, value: Value) -> tuple[Value, ...]:
        made = lowering.builder.value("s", State())
        lowering.context.shared_rows.state = made
        return (made,)

    def hand_on(self, lowering: Lowering) -> tuple[Value, ...]:
        return (lowering.context.shared_rows.next_state(None),)


class CarriedTile(Carried):
    def bind(self, lowering: Lowering, value: Value) -> tuple[Value, ...]:
        named = tuple(lowering.builder.value(value.name, v.type) for v in self.init)
        lowering.env[value] = held(lowering.context.shapes.of(value.as_tile.axes), named)
        return named

    @classmethod
    def of(cls, lowering: Lowering, first: Value, arg: Value, last: Value, made: Value) -> Carried:
        return cls(lowering.pieces(first).all(), arg, last, made)

    def hand_on(self, lowering: Lowering) -> tuple[Value, ...]:
        return lowering.pieces(self.last).all()


class CarriedLoad(CarriedTile):
    """A tile that successive loads read: only the rows or columns of fragments that differ."""

    def bind(self, lowering: Lowering, value: Value) -> tuple[Value, ...]:
        named = super().bind(lowering, value)
        least = lowering.env[value]
        lowering.env[value] = narrow(least.shape, value.as_tile.dtype, lowering.builder, least.get)
        return named

    @classmethod
    def of(cls, lowering: Lowering, first: Value, arg: Value, last: Value, made: Value) -> Carried:
        return cls(lowering.pieces(first).least.all(), arg, last, made)

    def hand_on(self, lowering: Lowering) -> tuple[Value, ...]:
        return lowering.pieces(self.last).least.all()


class CarriedOperand(Carried):
    """Transformed operands of the MMAs in flight: the registers that these read. `arg`, `last` and
    `made` are the stage that they read, too.
    """

    @classmethod
    def of(cls, lowering: Lowering, loop: ForRange, slot: Value) -> Carried:
        at = loop.args.index(slot)
        names = slot, yielded(loop.body)[at], loop.result[at]
        none = (_zeros(lowering.builder, kind) for kind in _last_operands(lowering, loop))
        return cls(tuple(none), *names)

    def bind(self, lowering: Lowering, value: Value) -> tuple[Value, ...]:
        return tuple(lowering.builder.value("operand", v.type) for v in self.init)

    def hand_on(self, lowering: Lowering) -> tuple[Value, ...]:
        made = tuple(v for group in lowering.products.in_flight for v in group.fragments)
        assert [v.type for v in made] == [v.type for v in self.init]
        return made


def _last_operands(lowering: Lowering, loop: ForRange) -> Iterator[Fragment]:
    """Yield the transformed operands of the MMAs after the last release: a fragment per block of
    rows of each.
    """
    shapes = lowering.context.shapes
    places = (n for n, op in enumerate(loop.body) if isinstance(op, MbarrierArrive))
    for op in loop.body[max(places, default=-1) + 1 :]:
        if not isinstance(op, Contract):
            continue
        (k,) = op.summed
        begin, end = op.depth or (0, shapes.axes[k].size)
        for kind in op.tiles:
            if isinstance(kind, Tile):
                rows = shapes.of(kind.axes).blocks
                yield from rows * (Fragment(kind.dtype, 64, end - begin),)


def _zeros(b: Builder, kind: Fragment) -> Value:
    """As an operand in registers."""
    zero = b.constant(0.0 if kind.dtype.is_float else 0, Tile(kind.dtype), "zero")
    full = b.add(Full(result=b.value("none", kind), value=zero, loc=b.loc)).result
    return b.make(ConvertLayout, "operand", kind.as_operand, x=full, loc=b.loc)


@dataclass
class CarriedSum(Carried):
    """Accumulators, and, unless it is known, a flag whether an MMA was added. It is known if the
    loop adds in every iteration to zeros: then the first MMA overwrites.
    """

    tile: Accumulated = dataclasses.field(kw_only=True)
    loop: ForRange = dataclasses.field(kw_only=True)
    known: bool = dataclasses.field(kw_only=True)
    flagged: bool = dataclasses.field(kw_only=True)

    @classmethod
    def of(
        cls,
        lowering: Lowering,
        loop: ForRange,
        tile: Accumulated,
        names: tuple[Value, Value, Value],
        known: bool,
    ) -> CarriedSum:
        flagged = tile.started is not True and not known
        init = lowering.products.resume(tile, loop.loc)
        if flagged:
            init = (*init, _flag(lowering, tile.started))
        return cls(init, *names, tile=tile, loop=loop, known=known, flagged=flagged)

    def bind(self, lowering: Lowering, value: Value) -> tuple[Value, ...]:
        """Names for the accumulators, and for the flag if there is one."""
        b = lowering.builder
        named = tuple(b.value("started" if v.type == FLAG else "acc", v.type) for v in self.init)
        accumulators = named[:-1] if self.flagged else named
        started = named[-1] if self.flagged else True
        lowering.sums[value] = Accumulated(self.tile.shape, accumulators, started)
        return named

    def enter(self, lowering: Lowering) -> None:
        super().enter(lowering)
        if self.known:
            first = (self.loop.index, self.loop.start)
            lowering.sums[self.arg].started = lowering.builder.map("gt", *first, wish="started")

    def hand_on(self, lowering: Lowering) -> tuple[Value, ...]:
        tile = lowering.sums[self.last]
        handed = lowering.products.resume(tile, self.loop.loc)
        return (*handed, _flag(lowering, tile.started)) if self.flagged else handed

    def after(self, lowering: Lowering) -> None:
        if self.known:
            bounds = (self.loop.stop, self.loop.start)
            lowering.sums[self.made].started = lowering.builder.map("gt", *bounds, wish="any")


def _flag(lowering: Lowering, started: Value | bool) -> Value:
    return started if isinstance(started, Value) else lowering.builder.flag(started)


def carried_variable(
    lowering: Lowering,
    loop: ForRange,
    first: Value,
    arg: Value,
    last: Value,
    made: Value,
    is_sum: bool,
) -> Carried:
    """How it goes round, by what it is."""
    if is_sum:
        tile = lowering.addend(first, arg.type)
        known = tile.started is False and grows(loop.body, arg, last, by_products=True)
        return CarriedSum.of(lowering, loop, tile, (arg, last, made), known)
    if arg.is_tile:
        loaded = all(
            isinstance(lowering.context.made.get(v), (Load, Lookup)) for v in (first, last)
        )
        kind = CarriedLoad if loaded else CarriedTile
        return kind.of(lowering, first, arg, last, made)
    return CarriedScalar((lowering.scalar(first),), arg, last, made)
