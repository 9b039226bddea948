"""Which element types go together, and which numbers fit one."""

import math
from decimal import Decimal

from wsdsl.frontend.entities import Number
from wsdsl.ir.types import DTYPES, F32, FLOATS, DType

_WITHOUT_NAN = ("f6e2m3", "f6e3m2", "f4e2m1")
_WITHOUT_INFINITY = ("f8e4m3", "f8e8m0", *_WITHOUT_NAN)
_MOST_F32 = "3.4e38"
# Mantissa bits count as width here: tf32 is stored like an f32, but holds less.
_WIDTH = {"f32": 32, "tf32": 19, "bf16": 16, "f16": 16}


def promote(a: DType, b: DType) -> DType | None:
    """The type of an operation on both, or None if one must be cast.

    The wider of two floats, and of two integers of the same signedness. No float of under 16 bits
    holds what all others do: two of them are f32.
    """
    if a == b:
        return a
    if a.is_float and b.is_float:
        if {a.name, b.name} == {"f8e8m0", "f16"}:
            return None
        if is_small(a) and is_small(b):
            return F32
        wide = {_WIDTH.get(a.name, 8): a, _WIDTH.get(b.name, 8): b}
        return wide[max(wide)] if len(wide) == 2 else None
    if a.kind == b.kind and a.is_integer:
        return a if a.bits > b.bits else b
    return None


def is_small(dtype: DType) -> bool:
    """A float of under 16 bits, to which nothing is rounded but by a `cast`."""
    return dtype.is_float and dtype.bits < 16


def nearest(value: Number, dtype: DType) -> float:
    """Round a finite literal that fits to the nearest float."""
    step = max(2.0 ** (math.frexp(value)[1] - dtype.significant_bits), dtype.step)
    return round(value / step) * step


def is_rounded(value: Number, dtype: DType) -> bool:
    """Whether a float that a literal fits has another value."""
    return math.isfinite(value) and nearest(value, dtype) != value


def loses_digits(value: Number, dtype: DType) -> bool:
    """Whether f16, bf16 or tf32 is off by more than one in a literal's last digit."""
    if dtype.name not in ("f16", "bf16", "tf32") or not is_rounded(value, dtype):
        return False
    shown = Decimal(repr(float(value))).normalize()
    last = Decimal(10) ** int(shown.as_tuple().exponent)
    return abs(Decimal(nearest(value, dtype)) - shown) > last


def misfit(value: Number, dtype: DType) -> str:
    """Why a literal cannot be a `dtype`, or nothing."""
    shown = show_number(value)
    if dtype.kind == "bool":
        return "" if isinstance(value, bool) else f"{shown} is not a bool"
    if isinstance(value, bool):
        return f"{shown} is a bool, not {dtype}"
    if dtype.is_integer:
        if isinstance(value, float):
            return f"{shown} is not an integer"
        low, high = dtype.limits
        return "" if low <= value <= high else f"{shown} does not fit {dtype} ({low} to {high})"
    if isinstance(value, float) and not math.isfinite(value):
        lacks = _WITHOUT_NAN if math.isnan(value) else _WITHOUT_INFINITY
        what = "NaN" if math.isnan(value) else "infinity"
        return f"{dtype} has no {what}" if dtype.name in lacks else ""
    if dtype.name == "f8e8m0" and value <= 0:
        return f"{shown} is not positive; {dtype} has only powers of two"
    if abs(value) >= _rounded_up(dtype):
        return f"{shown} is too large for {dtype}"
    if value and dtype.name != "f8e8m0" and not nearest(value, dtype):
        return f"{shown} rounds to 0 in {dtype}, whose least number is {dtype.step:.1e}"
    return ""


def _rounded_up(dtype: DType) -> float:
    """The least number that rounds to more than the largest one of a float; tf32 is held as f32."""
    significant, _, largest = FLOATS["f32" if dtype.name == "tf32" else dtype.name]
    return largest + 2.0 ** (math.frexp(largest)[1] - significant - 1)


def wider(value: Number, dtype: DType) -> str:
    """The hint for a literal that cannot be a `dtype`."""
    if isinstance(value, bool):
        return f"write {int(value)}, or cast(x > 0, {dtype}) for a condition"
    floats = dtype.is_float or isinstance(value, float)
    others = [DTYPES[n] for n in (("f32",) if floats else ("i32", "u32"))]
    fitting = [other for other in others if not misfit(value, other)]
    if fitting or floats != dtype.is_float:
        other = fitting[0] if fitting else F32
        return f"cast to {other}, as in cast(x, {other}): a number takes the type of its context"
    if dtype.is_integer:
        return f"use f32, up to {_MOST_F32}: no integer type is wider than 32 bits"
    if abs(value) < 1:
        return "write 0.0, or scale the values: no type has smaller numbers than f32"
    return f"use `inf`, or a number up to {_MOST_F32}: no type is wider than f32"


def as_dtype(value: Number, dtype: DType) -> Number:
    """A literal that fits, as the Python type that the IR holds for `dtype`."""
    return float(value) if dtype.is_float else value


def show_number(value: Number) -> str:
    """Without the middle of a number that would fill the screen."""
    shown = repr(value)
    return shown if len(shown) <= 30 else f"{shown[:12]}…{shown[-6:]}"
