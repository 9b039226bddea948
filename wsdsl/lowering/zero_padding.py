"""What is 0 beyond the end of a dimension: of a tile, and of what a step there adds to a sum; and
what changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from wsdsl.ir import ops
from wsdsl.ir.op import Makers, Region, Value, operands
from wsdsl.ir.rewriter import definers, walk, yielded
from wsdsl.ir.types import Axis, DType

FROM_ZEROS_ZERO = ("add", "sub", "mul", "neg", "abs", "max", "min", "relu")


def tiles_of_zeros(region: Region) -> set[Value]:
    """Of zeros alone, anywhere in the region."""
    full = [op for op in walk(region) if isinstance(op, ops.Full)]
    constants = [op for op in walk(region) if isinstance(op, ops.Constant)] if full else []
    zeros = {op.result for op in constants if op.value == 0}
    return {op.result for op in full if op.value in zeros}


def zero_outside(value: Value, axis: str, made: Makers) -> bool:
    """Whether what lies outside of the dimension is 0 by itself: made of loads along the axis in
    such a way that zeros give zeros.
    """
    return _Zeros(axis, made).outside(value)


Ask = Callable[["_Zeros", Value], bool]


def _once(ask: Ask) -> Ask:
    """Asked once of each value, however many are made of it."""

    def asked(zeros: _Zeros, value: Value) -> bool:
        key = ask, value
        if key not in zeros.known:
            zeros.known[key] = ask(zeros, value)
        return zeros.known[key]

    return asked


class _Zeros:
    """Values that are 0 where the tile of an axis lies outside of its dimension, or is empty."""

    def __init__(self, axis: str, made: Makers) -> None:
        self.axis, self.made = axis, made
        self.known = dict[tuple[Ask, Value], bool]()

    @_once
    def outside(self, value: Value) -> bool:
        op = self.made.get(value)
        match op:
            case ops.Load() | ops.ElementsInShared():
                places = zip(op.index, op.tensor.as_tensor.dims, strict=True)
                return any(
                    isinstance(v.type, Axis) and (v.type.name, v.type.dim) == (self.axis, dim)
                    for v, dim in places
                )
            case ops.Cast():
                return self.outside(op.x)
            case ops.Map() if (scaled := self._scaled(op)) is not None:
                return self.outside(scaled)
            case ops.Map() if op.fn in FROM_ZEROS_ZERO:
                return all(map(self.outside, op.args))
            case _:
                return False

    def _scaled(self, op: ops.Map) -> Value | None:
        """The value that a number multiplies or divides."""
        if op.fn not in ("mul", "div"):
            return None
        for value, by in (op.args, op.args[::-1] if op.fn == "mul" else op.args):
            number = self.made.get(by)
            while isinstance(number, ops.Cast):
                number = self.made.get(number.x)
            if isinstance(number, ops.Constant) and number.value and math.isfinite(number.value):
                return value
        return None

    def multiplied(self, op: ops.Contract) -> bool:
        """Whether both operands are 0 outside of the dimension. One that is computed is made so
        along the axis that is summed over.
        """
        summed = self.axis in op.summed
        return all(
            self.outside(v) or (summed and not isinstance(self.made.get(v), ops.Load))
            for v in (op.a, op.b)
        )

    @_once
    def nothing(self, value: Value) -> bool:
        """Whether all of a tile that does not run along the axis is 0 where the axis' tile is
        empty.
        """
        op = self.made.get(value)
        match op:
            case ops.Contract(acc=None):
                return self.multiplied(op)
            case ops.Reduce(fn="add"):
                return op.axis == self.axis
            case ops.Cast():
                return self.nothing(op.x)
            case ops.Map() if (scaled := self._scaled(op)) is not None:
                return self.nothing(scaled)
            case ops.Map(fn="mul", args=(a, b)):
                return self.product(a, b)
            case ops.Map(fn="fma", args=(a, b, c)):
                return self.product(a, b) and self.nothing(c)
            case ops.Map() if op.fn in FROM_ZEROS_ZERO:
                return all(map(self.nothing, op.args))
            case _:
                return False

    def product(self, a: Value, b: Value) -> bool:
        """Whether a product is `nothing`."""
        return any(self.nothing(x) and self._factor(by) for x, by in ((a, b), (b, a)))

    @_once
    def _factor(self, value: Value) -> bool:
        """Whether it is a number of the tensors, or a product of such: 0 times it is 0, unless it
        is infinite, when what is added in the steps before it is infinite or NaN, too.
        """
        op = self.made.get(value)
        match op:
            case ops.Constant():
                return math.isfinite(op.value)
            case ops.Load():
                return True
            case ops.Cast():
                return self._factor(op.x)
            case ops.Map(fn="mul"):
                return all(map(self._factor, op.args))
            case _:
                return False


def adds_outside(loop: ops.ForTiles, body: Region) -> list[Value]:
    """The sums that a loop in `body` carries, and to which a step beyond the end of its dimension
    may add something. Each only ever grows (`split_k_rules.grows`).
    """
    zeros = _Zeros(loop.index.as_axis.name, definers(body))
    carried = zip(loop.args, yielded(loop.body), strict=True)
    return [arg for arg, last in carried if not _adds_nothing(loop.body, arg, last, zeros)]


def _adds_nothing(body: Region, arg: Value, last: Value, zeros: _Zeros) -> bool:
    while arg != last:
        user = next(op for op in body if arg in operands(op))
        match user:
            case ops.Contract(result=following):
                added = zeros.multiplied(user)
            case ops.Map(fn="add", args=args, result=following):
                added = all(zeros.nothing(v) for v in args if v != arg)
            case ops.Map(fn="fma", args=(a, b, _), result=following):
                added = zeros.product(a, b)
            case ops.DimLoop():
                i = user.init.index(arg)
                inner = user.args[i], yielded(user.body)[i]
                added = _adds_nothing(user.body, *inner, zeros)
                following = user.result[i]
            case _:
                return False
        if not added:
            return False
        arg = following
    return True


def neutral(fn: str, dtype: DType) -> int | float:
    """What changes nothing that it is joined with."""
    if fn == "add":
        return 0.0 if dtype.is_float else 0
    if dtype.name == "f8e8m0":
        return 2.0 ** (-127 if fn == "max" else 127)
    return dtype.limits[fn != "max"]
