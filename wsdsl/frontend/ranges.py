"""What integers an expression can be, as far as the text alone tells: for indices that are outside
of a tensor whatever its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wsdsl.frontend import typed
from wsdsl.ir.target import MAX_SIZE
from wsdsl.ir.types import DType

INDICES_END = MAX_SIZE - 1


class Range(NamedTuple):
    low: int
    high: int


def range_of(x: typed.Expr) -> Range:
    """All that an integer expression can be: of what is unknown, or may wrap, all of its type."""
    held, found = _of_type(x.type.dtype), _range(x)
    return held if found is None or found.low < held.low or found.high > held.high else found


def outside(x: typed.Expr, size: int | None) -> str:
    """Why an index lies outside of `size` elements (None: of any number), or nothing."""
    found = range_of(x)
    if found.high < 0:
        return f"{found.high} and less are" if found.low < found.high else f"{found.high} is"
    if size is None or found.low < size:
        return ""
    return f"{found.low} and more are" if found.low < found.high else f"{found.low} is"


def _of_type(dtype: DType) -> Range:
    low = -(1 << dtype.bits - 1) if dtype.kind == "int" else 0
    return Range(low, low + (1 << dtype.bits) - 1)


def _range(x: typed.Expr) -> Range | None:
    match x:
        case typed.Const() if isinstance(x.value, int):
            return Range(int(x.value), int(x.value))
        case typed.Ref():
            if x.var.counts:
                return Range(0, INDICES_END)
            return None if x.var.value is None else range_of(x.var.value)
        case typed.Index():
            return Range(0, INDICES_END)
        case typed.End() | typed.DimSize():
            return Range(0, MAX_SIZE)
        case typed.Full():
            return range_of(x.value)
        case typed.Cast():
            return range_of(x.x) if x.x.type.dtype.is_integer else None
        case typed.Map():
            chosen = x.args[1:] if x.fn == "where" else x.args
            return _mapped(x.fn, [range_of(a) for a in chosen])
        case _:
            return None


def _mapped(fn: str, args: Sequence[Range]) -> Range | None:
    if fn == "neg":
        return Range(-args[0].high, -args[0].low)
    if len(args) != 2:
        return None
    a, b = args
    match fn:
        case "add":
            return Range(a.low + b.low, a.high + b.high)
        case "sub":
            return Range(a.low - b.high, a.high - b.low)
        case "mul":
            corners = [p * q for p in a for q in b]
            return Range(min(corners), max(corners))
        case "floordiv" if b.low > 0:
            corners = [p // q for p in a for q in b]
            return Range(min(corners), max(corners))
        case "mod" if b.low > 0:
            # Of the divisor's sign; of small numbers that are not negative, they themselves.
            return a if a.low >= 0 and a.high < b.low else Range(0, b.high - 1)
        case "max":
            return Range(max(a.low, b.low), max(a.high, b.high))
        case "min":
            return Range(min(a.low, b.low), min(a.high, b.high))
        case "where":
            return Range(min(a.low, b.low), max(a.high, b.high))
        case _:
            return None
