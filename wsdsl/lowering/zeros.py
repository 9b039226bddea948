"""What is 0 beyond the end of a dimension: of a tile, and of what a step there adds to a sum; and
what changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from wsdsl.ir.op import Op, Region, Value, operands
from wsdsl.ir.slot_ops import ElementsInShared
from wsdsl.ir.tile_ops import Cast, Constant, Contract, ForEach, ForTiles, Full, Load, Map, Reduce
from wsdsl.ir.types import Axis, DType
from wsdsl.ir.walk import definers, walk, yielded

FROM_ZEROS_ZERO = ("add", "sub", "mul", "neg", "abs", "max", "min", "relu")
Made = Mapping[Value, Op]
"""Which op makes what."""


def tiles_of_zeros(region: Region) -> set[Value]:
    """Of zeros alone, anywhere in the region."""
    full = [op for op in walk(region) if isinstance(op, Full)]
    constants = [op for op in walk(region) if isinstance(op, Constant)] if full else []
    zeros = {op.result for op in constants if op.value == 0}
    return {op.result for op in full if op.value in zeros}


def zero_outside(value: Value, axis: str, made: Made) -> bool:
    """Whether what lies outside of the dimension is 0 by itself: made of loads along the axis in
    such a way that zeros give zeros."""
    op = made.get(value)
    match op:
        case Load() | ElementsInShared():
            places = zip(op.index, op.tensor.as_tensor.dims, strict=True)
            return any(
                isinstance(v.type, Axis) and (v.type.name, v.type.dim) == (axis, dim)
                for v, dim in places
            )
        case Cast():
            return zero_outside(op.x, axis, made)
        case Map() if (scaled := _scaled(op, made)) is not None:
            return zero_outside(scaled, axis, made)
        case Map() if op.fn in FROM_ZEROS_ZERO:
            return all(zero_outside(v, axis, made) for v in op.args)
        case _:
            return False


def _scaled(op: Map, made: Made) -> Value | None:
    """What a number multiplies or divides."""
    if op.fn not in ("mul", "div"):
        return None
    for value, by in (op.args, op.args[::-1] if op.fn == "mul" else op.args):
        number = made.get(by)
        while isinstance(number, Cast):
            number = made.get(number.x)
        if isinstance(number, Constant) and number.value and math.isfinite(number.value):
            return value
    return None


def adds_outside(loop: ForTiles, body: Region) -> list[Value]:
    """The sums that a loop in `body` carries, and to which a step beyond the end of its dimension
    may add something. Each only ever grows (`split_k_rules.grows`).
    """
    made, axis = definers(body), loop.index.as_axis.name
    carried = zip(loop.args, yielded(loop.body), strict=True)
    return [arg for arg, last in carried if not _adds_nothing(loop.body, arg, last, axis, made)]


def _adds_nothing(body: Region, arg: Value, last: Value, axis: str, made: Made) -> bool:
    while arg != last:
        user = next(op for op in body if arg in operands(op))
        match user:
            case Contract(result=following):
                added = _multiplies_zeros(user, axis, made)
            case Map(fn="add", args=args, result=following):
                added = all(_is_nothing(v, axis, made) for v in args if v != arg)
            case Map(fn="fma", args=(a, b, _), result=following):
                added = _is_nothing_times(a, b, axis, made)
            case ForTiles() | ForEach():
                i = user.init.index(arg)
                inner = user.args[i], yielded(user.body)[i]
                added = _adds_nothing(user.body, *inner, axis, made)
                following = user.result[i]
            case _:
                return False
        if not added:
            return False
        arg = following
    return True


def _multiplies_zeros(op: Contract, axis: str, made: Made) -> bool:
    """Whether both operands are 0 outside of the dimension. One that is computed is made so along
    the axis that is summed over.
    """
    return all(
        zero_outside(v, axis, made) or (axis in op.summed and not isinstance(made.get(v), Load))
        for v in (op.a, op.b)
    )


def _is_nothing(value: Value, axis: str, made: Made) -> bool:
    """Whether all of a tile that does not run along the axis is 0 where the axis' tile is empty."""
    op = made.get(value)
    match op:
        case Contract(acc=None):
            return _multiplies_zeros(op, axis, made)
        case Reduce(fn="add"):
            return op.axis == axis
        case Cast():
            return _is_nothing(op.x, axis, made)
        case Map() if (scaled := _scaled(op, made)) is not None:
            return _is_nothing(scaled, axis, made)
        case Map(fn="mul", args=(a, b)):
            return _is_nothing_times(a, b, axis, made)
        case Map(fn="fma", args=(a, b, c)):
            return _is_nothing_times(a, b, axis, made) and _is_nothing(c, axis, made)
        case Map() if op.fn in FROM_ZEROS_ZERO:
            return all(_is_nothing(v, axis, made) for v in op.args)
        case _:
            return False


def _is_nothing_times(a: Value, b: Value, axis: str, made: Made) -> bool:
    for nothing, factor in ((a, b), (b, a)):
        if _is_nothing(nothing, axis, made) and _is_factor(factor, made):
            return True
    return False


def _is_factor(value: Value, made: Made) -> bool:
    """Whether it is a number of the tensors, or a product of such: 0 times it is 0, unless it is
    infinite, when what is added in the steps before it is infinite or NaN, too.
    """
    op = made.get(value)
    match op:
        case Constant():
            return math.isfinite(op.value)
        case Load():
            return True
        case Cast():
            return _is_factor(op.x, made)
        case Map(fn="mul"):
            return all(_is_factor(v, made) for v in op.args)
        case _:
            return False


def neutral(fn: str, dtype: DType) -> int | float:
    """What changes nothing that it is joined with."""
    if fn == "add":
        return 0.0 if dtype.is_float else 0
    if dtype.name == "f8e8m0":
        return 2.0 ** (-127 if fn == "max" else 127)
    if dtype.is_float:
        return -math.inf if fn == "max" else math.inf
    signed = dtype.kind == "int"
    low = -(2 ** (dtype.bits - 1)) if signed else 0
    high = 2 ** (dtype.bits - signed) - 1
    return low if fn == "max" else high
