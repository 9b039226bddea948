"""Factors of a product's operand: `(A[m, k] * s[m]) @ B[n, k]` means sums of `A[m, k] * B[n, k]`,
each multiplied by `s[m]`. So what a factor makes of an operand is neither rounded to the operand's
type nor too large for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wsdsl.ir.op import Op, Value, operands
from wsdsl.ir.tile_ops import Bitcast, Cast, Constant, Index, Load, Lookup, Map
from wsdsl.ir.types import Axis, DType, Tile

Makers = Mapping[Value, Op]


def factored(value: Value, k: str, made: Makers) -> tuple[Value, list[Value]] | None:
    """A load under multiplications, and the factors, each the same for all of a tile of the axis
    `k`; None where the value is made in another way.
    """
    match made.get(value):
        case Load():
            return value, []
        case Cast(x=x) if _widens(_dtype(x), _dtype(value)):
            return factored(x, k, made)
        case Map(fn="mul", args=(x, y)) if _dtype(value).is_float:
            for tile, factor in ((x, y), (y, x)):
                if k in _axes(tile) and is_same_over(factor, k, made):
                    found = factored(tile, k, made)
                    if found is not None:
                        return found[0], [*found[1], factor]
        case _:
            pass
    return None


def is_same_over(value: Value, k: str, made: Makers) -> bool:
    """Whether it depends on the axis at most by `index(k) // c`."""
    if isinstance(value.type, Axis):
        return value.type.name != k
    if k not in _axes(value):
        return True
    op = made.get(value)
    match op:
        case Map(fn="floordiv", args=(x, y)) if isinstance(made.get(x), Index):
            by: Any = made.get(y)
            return isinstance(by, Constant) and by.value > 0
        case Map() | Cast() | Bitcast() | Load() | Lookup():
            inner = (v for v in operands(op) if isinstance(v.type, (Tile, Axis)))
            return all(is_same_over(v, k, made) for v in inner)
        case _:
            return False


def _axes(value: Value) -> tuple[str, ...]:
    return value.type.axes if isinstance(value.type, Tile) else ()


def _dtype(value: Value) -> DType:
    assert isinstance(value.type, Tile)
    return value.type.dtype


def _widens(source: DType, target: DType) -> bool:
    """Whether every value stays as it is; tf32 is stored like f32."""
    narrower = source.bits < target.bits or source.name == "tf32"
    return source.is_float and target.is_float and narrower and source != target
