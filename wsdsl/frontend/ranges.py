"""Value ranges of integer expressions, independent of sizes, for indices that are always outside of
a tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from wsdsl.frontend import typed_tree
from wsdsl.ir.analysis.intervals import Interval, image
from wsdsl.ir.hardware.gmem_limits import MAX_SIZE
from wsdsl.ir.types import I32
from wsdsl.lazy import of_each
from wsdsl.record import record

INDICES_END = MAX_SIZE - 1
WRAP = 1 << 32
WRAPPING = ("add", "sub", "mul")


def range_of(x: typed_tree.Expr) -> Interval:
    """Return the range of an integer expression: that of its type, if it is unknown or may wrap."""
    held, found = Interval(*x.type.dtype.limits), _range(x)
    return held if found is None or found.low < held.low or found.high > held.high else found


def may_wrap(x: typed_tree.Map) -> bool:
    """Check whether an integer `add`, `sub` or `mul` may exceed its type. Indices that are computed
    from sizes do not exceed the sizes.
    """
    held = Interval(*x.type.dtype.limits)
    found = _range(x) if x.type.dtype.is_integer and x.fn in WRAPPING else None
    return found is not None and (found.low < held.low or found.high > held.high)


def outside(x: typed_tree.Expr, size: int | str) -> str:
    """Return why an index is outside of a dimension for all sizes of a named dimension, or ""."""
    low, high = _reach(x)
    beyond = low - (Bound.of(size) if isinstance(size, str) else Bound(size))
    if high.most < 0 and low.least >= -WRAP // 2:
        return f"{high} and less are" if low != high else f"{high} is"
    # For size 0 every index is outside. A wrapped index is negative: outside, too.
    least = beyond.least + max(dict(beyond.dims).get(str(size), 0), 0)
    if least >= 0 and high.most < WRAP:
        return f"{low} and more are" if low != high else f"{low} is"
    return ""


@record
class Bound:
    """A number plus multiples of dimensions, whose sizes are from 0 to `MAX_SIZE`."""

    number: int
    dims: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, dim: str, more: int = 0) -> Bound:
        return cls(more, ((dim, 1),))

    def __add__(self, other: Bound) -> Bound:
        times = Counter(dict(self.dims))
        times.update(dict(other.dims))
        held = tuple(sorted((d, n) for d, n in times.items() if n))
        return Bound(self.number + other.number, held)

    def __sub__(self, other: Bound) -> Bound:
        return self + other.times(-1)

    def times(self, by: int) -> Bound:
        return Bound(self.number * by, tuple((d, n * by) for d, n in self.dims if by))

    @property
    def least(self) -> int:
        return self.number + sum(min(n, 0) * MAX_SIZE for _, n in self.dims)

    @property
    def most(self) -> int:
        return self.number + sum(max(n, 0) * MAX_SIZE for _, n in self.dims)

    def __str__(self) -> str:
        names = {1: "", -1: "-"}
        parts = [f"{names.get(n, f'{n} * ')}{d}" for d, n in self.dims]
        parts += [str(self.number)] if self.number or not parts else []
        return " + ".join(parts).replace("+ -", "- ")


class Reach(NamedTuple):
    """All integers from `low` to `high`."""

    low: Bound
    high: Bound


def _reach(x: typed_tree.Expr) -> Reach:
    """Return the range of an integer expression by the sizes of dimensions; for i32 up to multiples
    of `WRAP`.
    """
    found, numbers, held = _by_sizes(x), range_of(x), Interval(*x.type.dtype.limits)
    fits = found and (found.low.least >= held.low and found.high.most <= held.high)
    if found is None or not (fits or x.type.dtype == I32):
        return Reach(Bound(numbers.low), Bound(numbers.high))
    return found


def _by_sizes(x: typed_tree.Expr) -> Reach | None:
    match x:
        case typed_tree.Ref(var=typed_tree.Var(counts=dim)) if dim:
            return Reach(Bound(0), Bound.of(dim, -1))
        case typed_tree.Ref() if x.var.value is not None:
            return _reach_of(x.var)
        case typed_tree.Index():
            return Reach(Bound(0), Bound.of(x.axis.dim, -1))
        case typed_tree.End():
            return Reach(Bound(0), Bound.of(x.axis.dim))
        case typed_tree.DimSize():
            return Reach(Bound.of(x.dim), Bound.of(x.dim))
        case typed_tree.Full():
            return _reach(x.value)
        case typed_tree.Map(fn="mul", args=(a, typed_tree.Const(value=int(by)))) if by >= 0:
            (low, high) = _reach(a)
            return Reach(low.times(by), high.times(by))
        case typed_tree.Map(fn="neg", args=(a,)):
            (low, high) = _reach(a)
            return Reach(high.times(-1), low.times(-1))
        case typed_tree.Map(fn="add", args=(a, b)):
            (p, q), (r, t) = _reach(a), _reach(b)
            return Reach(p + r, q + t)
        case typed_tree.Map(fn="sub", args=(a, b)):
            (p, q), (r, t) = _reach(a), _reach(b)
            return Reach(p - t, q - r)
        case _:
            return None


def _range(x: typed_tree.Expr) -> Interval | None:
    match x:
        case typed_tree.Const() if isinstance(x.value, int):
            return Interval(int(x.value), int(x.value))
        case typed_tree.Ref():
            return Interval(0, INDICES_END) if x.var.counts else _range_of(x.var)
        case typed_tree.Index():
            return Interval(0, INDICES_END)
        case typed_tree.End() | typed_tree.DimSize():
            return Interval(0, MAX_SIZE)
        case typed_tree.Full():
            return range_of(x.value)
        case typed_tree.Cast():
            return range_of(x.x) if x.x.type.dtype.is_integer else None
        case typed_tree.Map():
            chosen = x.args[1:] if x.fn == "where" else x.args
            return _mapped(x.fn, [range_of(a) for a in chosen])
        case _:
            return None


@of_each
def _reach_of(var: typed_tree.Var) -> Reach:
    assert var.value is not None
    return _reach(var.value)


@of_each
def _range_of(var: typed_tree.Var) -> Interval | None:
    return None if var.value is None else range_of(var.value)


def _mapped(fn: str, args: Sequence[Interval]) -> Interval | None:
    if fn == "neg":
        return Interval(-args[0].high, -args[0].low)
    return image(fn, *args) if len(args) == 2 else None
