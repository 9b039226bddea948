"""Loops over a part of a dimension."""

from __future__ import annotations

from collections.abc import Mapping

from wsdsl.ir.op import Op, Value
from wsdsl.ir.tile_ops import Constant, ForTiles


def walks_a_part(loop: Op | None) -> bool:
    return isinstance(loop, ForTiles) and (loop.start is not None or loop.stop is not None)


def may_begin_anywhere(loop: Op | None, made: Mapping[Value, Op]) -> bool:
    """Whether tiles of a loop may begin elsewhere than at multiples of their size, whatever that
    is."""
    if not isinstance(loop, ForTiles) or loop.start is None:
        return False
    start = made.get(loop.start)
    return not (isinstance(start, Constant) and start.value <= 0)
