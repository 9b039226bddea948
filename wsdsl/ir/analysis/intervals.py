"""Intervals of integers: those of functions follow from the intervals of their operands."""

from __future__ import annotations

from typing import NamedTuple

from wsdsl.ir.op import Makers, Op
from wsdsl.ir.ops import Constant, ForTiles


class Interval(NamedTuple):
    """All integers from `low` to `high`."""

    low: int
    high: int


def image(fn: str, a: Interval, b: Interval) -> Interval | None:
    """Return the interval of a binary function of the IR, or "where" of its two values; None if
    that is not known. Nothing wraps: callers compare it with the range of the type.
    """
    match fn:
        case "add":
            return Interval(a.low + b.low, a.high + b.high)
        case "sub":
            return Interval(a.low - b.high, a.high - b.low)
        case "mul":
            corners = [p * q for p in a for q in b]
            return Interval(min(corners), max(corners))
        case "floordiv" if b.low > 0:
            corners = [p // q for p in a for q in b]
            return Interval(min(corners), max(corners))
        case "mod" if b.low > 0:
            # Of the divisor's sign; of small numbers that are not negative, they themselves.
            return a if a.low >= 0 and a.high < b.low else Interval(0, b.high - 1)
        case "max":
            return Interval(max(a.low, b.low), max(a.high, b.high))
        case "min":
            return Interval(min(a.low, b.low), min(a.high, b.high))
        case "where":
            return Interval(min(a.low, b.low), max(a.high, b.high))
        case _:
            return None


# Loops over a part of a dimension.
def walks_a_part(loop: Op | None) -> bool:
    return isinstance(loop, ForTiles) and (loop.start is not None or loop.stop is not None)


def may_begin_anywhere(loop: Op | None, made: Makers) -> bool:
    """Whether tiles of a loop may begin elsewhere than at multiples of any size that
    is."""
    if not isinstance(loop, ForTiles) or loop.start is None:
        return False
    start = made.get(loop.start)
    return not (isinstance(start, Constant) and start.value <= 0)
