"""Whether the tiles of a loop store to different elements, where `end(n)` says to which.

An index along the axis tells tiles apart by itself. One that is computed of `end(n)` does if each
tile has another number: `end(n)`, or `(end(n) - 1) // 64` where the tiles are multiples of 64. What
is read from a tensor, and what is computed of the index of `each`, nobody can tell: there the text
vouches for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from wsdsl.ir.op import Op, Value, operands
from wsdsl.ir.tile_ops import Constant, End, ForTiles, Map, Store
from wsdsl.ir.walk import made_of


def may_meet(store: Store, loop: ForTiles, made: Mapping[Value, Op]) -> bool:
    """Whether tiles of the loop may store to the same elements, for all that the text says."""
    if loop.index in store.index:
        return False
    ends, others = _ways(store, loop.index, made)
    unit = loop.index.as_axis.size
    return ends and not others and not any(_differs(v, unit, loop, made) for v in store.index)


def _ways(store: Store, index: Value, made: Mapping[Value, Op]) -> tuple[bool, bool]:
    """Whether an index of the store is computed of the ends of tiles, and of something else of
    them.
    """
    ends = others = False
    for _, op in made_of(store.index, made, lambda op: not isinstance(op, ForTiles)):
        if not isinstance(op, ForTiles):
            ends |= isinstance(op, End) and op.axis == index
            others |= index in operands(op) and not isinstance(op, End)
    return ends, others


def _differs(value: Value, unit: int, loop: ForTiles, made: Mapping[Value, Op]) -> bool:
    """Whether it is another number for each tile of `unit` elements; the last may have fewer."""
    match made.get(value):
        case End(axis=axis):
            return axis == loop.index
        case Map(fn="add" | "sub", args=args):
            told = [_differs(v, unit, loop, made) for v in args]
            other = args[told.index(False)] if any(told) and not all(told) else None
            return other is not None and isinstance(made.get(other), Constant)
        case Map(fn="mul", args=(a, b)):
            factor = made.get(b)
            whole = isinstance(factor, Constant) and bool(factor.value)
            return whole and _differs(a, unit, loop, made)
        case Map(fn="floordiv", args=(a, b)):
            by = made.get(b)
            divides = isinstance(by, Constant) and by.value > 0 and unit % int(by.value) == 0
            return divides and _is_last(a, loop, made)
        case _:
            return False


def _is_last(value: Value, loop: ForTiles, made: Mapping[Value, Op]) -> bool:
    """Whether it is `end(n) - 1`, the last index of the tile."""
    match made.get(value):
        case Map(fn="add" | "sub" as fn, args=(a, b)):
            end, step = made.get(a), made.get(b)
            one = isinstance(step, Constant) and step.value == (1 if fn == "sub" else -1)
            return one and isinstance(end, End) and end.axis == loop.index
        case _:
            return False
