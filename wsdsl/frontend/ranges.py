"""What integers an expression can be, as far as the text alone tells: for indices that are outside
of a tensor whatever its size.
"""

from __future__ import annotations

from collections.abc import Sequence

from wsdsl.frontend import typed
from wsdsl.ir.intervals import Interval, image
from wsdsl.ir.target import MAX_SIZE
from wsdsl.ir.types import DType

INDICES_END = MAX_SIZE - 1


def range_of(x: typed.Expr) -> Interval:
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


def _of_type(dtype: DType) -> Interval:
    low = -(1 << dtype.bits - 1) if dtype.kind == "int" else 0
    return Interval(low, low + (1 << dtype.bits) - 1)


def _range(x: typed.Expr) -> Interval | None:
    match x:
        case typed.Const() if isinstance(x.value, int):
            return Interval(int(x.value), int(x.value))
        case typed.Ref():
            if x.var.counts:
                return Interval(0, INDICES_END)
            return None if x.var.value is None else range_of(x.var.value)
        case typed.Index():
            return Interval(0, INDICES_END)
        case typed.End() | typed.DimSize():
            return Interval(0, MAX_SIZE)
        case typed.Full():
            return range_of(x.value)
        case typed.Cast():
            return range_of(x.x) if x.x.type.dtype.is_integer else None
        case typed.Map():
            chosen = x.args[1:] if x.fn == "where" else x.args
            return _mapped(x.fn, [range_of(a) for a in chosen])
        case _:
            return None


def _mapped(fn: str, args: Sequence[Interval]) -> Interval | None:
    if fn == "neg":
        return Interval(-args[0].high, -args[0].low)
    return image(fn, *args) if len(args) == 2 else None
