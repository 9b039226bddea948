"""Factors of a product's operand: `(A[m, k] * s[m]) @ B[n, k]` means sums of `A[m, k] * B[n, k]`,
each multiplied by `s[m]`. So what a factor makes of an operand is neither rounded to the operand's
type nor too large for it.
"""

from __future__ import annotations

from typing import Any

from wsdsl.ir.analysis.intervals import may_begin_anywhere
from wsdsl.ir.hardware.wgmma_shapes import is_fp8, sum_of
from wsdsl.ir.op import Makers, Value, operands
from wsdsl.ir.ops import Bitcast, Cast, Constant, Contract, Index, Load, Lookup, Map
from wsdsl.ir.types import DTYPES, F32, Axis, DType, Tile

Factored = tuple[Value, list[Value]]
"""The tensor cores' operand, and its factors: values in which the contraction axis
may occur as `index(k) // c`, if tiles begin at multiples of their size."""
SMALL = ("f6e2m3", "f6e3m2", "f4e2m1")
"""Of these every value is one of f8e4m3, and of all wider types."""


def factored(op: Contract, made: Makers) -> tuple[Factored, Factored] | None:
    """Both operands with their factors, where the tensor cores multiply what is without them, or
    what `taken_as` says, and one of the operands is more than that.
    """
    shared = [x for x in op.a.axes if x in op.b.axes]
    sides = [split(v, shared[0], made) for v in (op.a, op.b)] if len(shared) == 1 else [None]
    match sides:
        case [(Value() as a, _) as left, (Value() as b, _) as right] if (a, b) != (op.a, op.b):
            found = sum_of(*taken_as(_dtype(a), _dtype(b))) == _dtype(op.result)
            return (left, right) if found else None
        case _:
            return None


def split(value: Value, k: str, made: Makers) -> Factored | None:
    """A load under multiplications, or under those of f32 any tile of a type that is multiplied, or
    of `SMALL`; and the factors, each the same for all of a tile of the axis `k`. None where the
    value is made in another way. Of fp8 a `cast` to a type that is multiplied is meant: the tensor
    cores sum products of fp8 in fewer bits.
    """

    def fits(found: Factored | None) -> bool:
        if found is None or _dtype(value) == F32:
            return found is not None
        return isinstance(made.get(found[0]), Load) and _dtype(found[0]).name not in SMALL

    match made.get(value):
        case Load():
            return value, []
        case Cast(x=x) if is_fp8(_dtype(x)) and sum_of(_dtype(value), _dtype(value)):
            pass
        case Cast(x=x) if widens(_dtype(x), _dtype(value)) and fits(found := split(x, k, made)):
            return found
        case Cast(x=x) if isinstance(product := made.get(x), Map) and _dtype(x) == F32:
            # A literal that the operand's type does not hold: the product is rounded to that.
            found = split(x, k, made) if product.fn == "mul" else None
            tile, factors = found or (value, [])
            known = all(isinstance(made.get(v), Constant) for v in factors)
            if known and _dtype(tile) == _dtype(value) and isinstance(made.get(tile), Load):
                return found
        case Map(fn="mul", args=(x, y)) if _dtype(value).is_float:
            for tile, factor in ((x, y), (y, x)):
                if k in tile.axes and _is_same_over(factor, k, made):
                    found = split(tile, k, made)
                    if found is not None and fits(found):
                        return found[0], [*found[1], factor]
        case _:
            pass
    return (value, []) if sum_of(_dtype(value), _dtype(value)) else None


def taken_as(a: DType, b: DType) -> tuple[DType, DType]:
    """Return the MMA dtypes of two operands: one of `SMALL` as the other one's type, or f8e4m3."""

    def wide(own: DType, other: DType) -> DType:
        if own.name not in SMALL:
            return own
        return other if other.name in ("f16", "bf16", "tf32") else DTYPES["f8e4m3"]

    return wide(a, b), wide(b, a)


def _is_same_over(value: Value, k: str, made: Makers) -> bool:
    """Whether it depends on the axis at most by `index(k) // c`."""
    if isinstance(value.type, Axis):
        return value.type.name != k
    if k not in value.axes:
        return True
    op = made.get(value)
    match op:
        case Map(fn="floordiv", args=(x, y)) if isinstance(index := made.get(x), Index):
            by: Any = made.get(y)
            even = not may_begin_anywhere(made.get(index.axis), made)
            return even and isinstance(by, Constant) and by.value > 0
        case Map() | Cast() | Bitcast() | Load() | Lookup():
            inner = (v for v in operands(op) if isinstance(v.type, (Tile, Axis)))
            return all(_is_same_over(v, k, made) for v in inner)
        case _:
            return False


def _dtype(value: Value) -> DType:
    return value.as_tile.dtype


def significant_bits(value: Value, made: Makers) -> int:
    """The most that an element of a float has, by what it is a product of."""
    value = unwidened(value, made)
    match made.get(value):
        case Map(fn="mul", args=args) if _dtype(value) == F32:
            return sum(significant_bits(v, made) for v in args)
        case _:
            return _dtype(value).significant_bits if _dtype(value).is_float else F32.bits


def unwidened(value: Value, made: Makers) -> Value:
    """Return the value before it was widened."""
    op = made.get(value)
    while isinstance(op, Cast) and widens(_dtype(op.x), _dtype(op.result)):
        value = op.x
        op = made.get(value)
    return value


def widens(source: DType, target: DType) -> bool:
    """Whether every value stays as it is; tf32 is stored like f32."""
    if "f8e8m0" in (source.name, target.name):
        return source != target and target.name in ("bf16", "tf32", "f32")
    narrower = source.bits < target.bits or source.name == "tf32"
    return source.is_float and target.is_float and narrower and source != target
