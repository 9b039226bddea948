"""Which reductions of rows that the CTAs of a cluster share can be found out together.

Reductions that need nothing of each other send their parts at once. So can a sum whose summand
reads an earlier reduction of the row, if a CTA may take its own part's in its stead, and the sums
can be put right when they are put together. That is so of two forms, where f is made of what rows
have, and r of that:

    sum(exp((x - f) * s)), r = max(x), f = r (or a number where r is -inf)
    sum((x - f) ** 2),     r = sum(x), f is not finite where r is not

In the first a CTA takes its own maximum, and its sum is multiplied by what the exponential is of
the difference of both; no exponential of the row is larger than without. In the second it takes its
own mean c, so that n * (c - f) ** 2 of its n elements is left to be added, and nothing cancels. Of
a row with an infinite element c is none, nor is the sum then, so that f must tell the same.
"""

import math
from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Makers, Op, Region, Value, operands, results_of
from wsdsl.ir.rewriter import used_inside
from wsdsl.ir.types import F32

EXPONENTIALS = ("exp", "exp2")
WORD = 32


@dataclass(frozen=True)
class Exponential:
    """`steps` make the summand of a difference: products with what rows have, and the function."""

    of: ops.Reduce
    less: ops.Map
    steps: tuple[ops.Map, ...]


@dataclass(frozen=True)
class Squares:
    of: ops.Reduce
    less: ops.Map
    mean: Value
    """What is taken away."""


Follower = Exponential | Squares


@dataclass
class Round:
    """Reductions that are exchanged at once, in order; those that follow another by their results.
    `tainted` is all that depends on them.
    """

    members: list[ops.Reduce]
    followers: dict[Value, Follower] = field(default_factory=dict[Value, Follower])
    tainted: set[Value] = field(default_factory=set[Value])

    def takes(self, op: ops.Reduce) -> bool:
        first = self.members[0]
        kinds = first.result.as_tile.axes == op.result.as_tile.axes
        return kinds and (first.axis, first.ctas) == (op.axis, op.ctas)

    def add(self, op: ops.Reduce) -> None:
        self.members.append(op)
        self.tainted.add(op.result)


def rounds(kernel: Kernel, region: Region, shared: Container[str]) -> list[Round]:
    """Of a region itself: those of several reductions, along axes that CTAs share."""
    made, read = kernel.definers, {op.tensor for op in kernel.of(ops.Load)}
    found: list[Round] = []
    current: Round | None = None
    for op in region:
        depends = current is not None and bool({*_read(op)} & current.tainted)
        if not (
            isinstance(op, ops.Reduce) and op.x.as_tile.dtype.bits == WORD and op.axis in shared
        ):
            if current and depends:
                current.tainted |= made_by(op)
                current = current if _may_wait(op, read) else None
            continue
        following = _Forms(current, made).of(op) if current and depends else None
        if current and current.takes(op) and (following or not depends):
            current.add(op)
            if following:
                current.followers[op.result] = following
        else:
            current = Round([op], tainted={op.result})
            found.append(current)
    return [each for each in found if len(each.members) > 1]


def made_by(op: Op) -> set[Value]:
    """By what others depend on it: of a store the tensor, where it stays in front of later ones."""
    return {op.tensor} if isinstance(op, ops.Store) else {*results_of(op)}


def _read(op: Op) -> Iterator[Value]:
    yield from operands(op)
    yield from used_inside(op)


def _may_wait(op: Op, read: set[Value]) -> bool:
    """Whether it may come behind the exchange."""
    if isinstance(op, ops.Store):
        return op.tensor not in read
    return op.pure and op.repeatable


class _Forms:
    """What of a round a sum may follow."""

    def __init__(self, current: Round, made: Makers) -> None:
        self.current, self.made = current, made

    def of(self, op: ops.Reduce) -> Follower | None:
        if op.fn != "add" or op.x.as_tile.dtype != F32:
            return None
        return self.exponential(op) or self.squares(op)

    def exponential(self, op: ops.Reduce) -> Exponential | None:
        steps, value = list[ops.Map](), op.x
        while isinstance(step := self.made.get(value), ops.Map):
            if step.fn == "sub":
                x, f = step.args
                leader = self.maximum(f) if steps and not self.varies(x) else None
                fits = leader is not None and alike(x, leader.x, self.made)
                return Exponential(leader, step, tuple(steps)) if fits and leader else None
            inner = [v for v in step.args if self.varies(v)]
            rest = [v for v in step.args if not self.varies(v)]
            first = step.fn in EXPONENTIALS and not steps
            scaled = step.fn in ("mul", "div") and bool(steps) and step.args[0] in inner
            scaled = scaled or (step.fn == "mul" and bool(steps))
            if len(inner) != 1 or not (first or scaled) or any(op.axis in v.axes for v in rest):
                return None
            steps.append(step)
            (value,) = inner
        return None

    def maximum(self, value: Value) -> ops.Reduce | None:
        """The maximum of the round that a value is, but where that is -inf."""
        match self.made.get(value):
            case ops.Reduce(fn="max") as op if op in self.current.members:
                return op
            case ops.Map(fn="max", args=args):
                rest = [v for v in args if self.number(v) != -math.inf]
                return self.maximum(rest[0]) if len(rest) == 1 else None
            case ops.Map(fn="where", args=(cond, number, rest)):
                found = self.number(number)
                finite = found is not None and math.isfinite(found)
                return self.maximum(rest) if finite and self.is_nothing(cond, rest) else None
            case _:
                return None

    def is_nothing(self, cond: Value, value: Value) -> bool:
        """Whether it asks if a value is -inf."""
        match self.made.get(cond):
            case ops.Map(fn="eq", args=(a, b)):
                return value in (a, b) and -math.inf in (self.number(a), self.number(b))
            case _:
                return False

    def squares(self, op: ops.Reduce) -> Squares | None:
        square = self.made.get(op.x)
        if not isinstance(square, ops.Map) or square.fn != "mul" or len({*square.args}) != 1:
            return None
        less = self.made.get(square.args[0])
        if not isinstance(less, ops.Map) or less.fn != "sub":
            return None
        for x, f in (less.args, less.args[::-1]):
            if self.varies(x) or not self.varies(f) or op.axis in f.axes:
                continue
            for leader in self.current.members:
                plain = leader.fn == "add" and leader.result not in self.current.followers
                fits = plain and leader.x.as_tile.dtype == F32 and alike(x, leader.x, self.made)
                if fits and self.is_finite_with(f, leader.result):
                    return Squares(leader, less, f)
        return None

    def is_finite_with(self, value: Value, total: Value) -> bool:
        """Whether a value can be finite only where a sum is."""
        match self.made.get(value):
            case ops.Map(fn="add" | "sub" | "mul", args=args):
                return any(self.is_finite_with(v, total) for v in args)
            case ops.Map(fn="neg", args=(x,)) | ops.Map(fn="div", args=(x, _)):
                return self.is_finite_with(x, total)
            case _:
                return value == total

    def varies(self, value: Value) -> bool:
        return value in self.current.tainted

    def number(self, value: Value) -> float | None:
        return number(value, self.made)


def number(value: Value, made: Makers) -> float | None:
    """What a value is everywhere."""
    match made.get(value):
        case ops.Constant(value=held):
            return float(held)
        case ops.Full(value=inner):
            return number(inner, made)
        case _:
            return None


def alike(a: Value, b: Value, made: Makers) -> bool:
    """Whether two values are the same, in whatever type."""
    return _same(_narrowest(a, made), _narrowest(b, made), made)


def _narrowest(value: Value, made: Makers) -> Value:
    while isinstance(op := made.get(value), ops.Cast):
        wide, own = op.result.as_tile.dtype, op.x.as_tile.dtype
        if not (wide == F32 and own.is_float):
            return value
        value = op.x
    return value


def _same(a: Value, b: Value, made: Makers) -> bool:
    if a == b:
        return True
    match made.get(a), made.get(b):
        case (ops.Map() as x, ops.Map() as y):
            kinds = a.type == b.type and (x.fn, x.bits) == (y.fn, y.bits)
            return kinds and all(_same(u, v, made) for u, v in zip(x.args, y.args, strict=True))
        case (ops.Cast() as x, ops.Cast() as y):
            kinds = (a.type, x.saturate) == (b.type, y.saturate)
            return kinds and _same(x.x, y.x, made)
        case _:
            own = number(a, made)
            return a.type == b.type and own is not None and own == number(b, made)


def elements_of_each(size: int, tile: int, ctas: int) -> list[int]:
    """Elements of a dimension that each CTA has, by rank."""
    return [max(0, min(tile, size - rank * tile)) for rank in range(ctas)]
