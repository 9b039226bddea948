"""Rows that are taken from elsewhere: loads that only a choice by rows reads, of elements of which
a register has two or four.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from wsdsl.ir.memory_ops import LoadGlobal
from wsdsl.ir.op import Region, Value
from wsdsl.ir.tile_ops import Map
from wsdsl.ir.types import BOOL, Fragment


def choices_of_rows(
    region: Region, used: Mapping[Value, int], stored: Container[str]
) -> Iterator[tuple[Map, LoadGlobal]]:
    """Each such choice, with the load, in the same region and of what nobody writes; `used`: how
    often a value is.
    """
    loads = {op.result: op for op in region if isinstance(op, LoadGlobal)}
    for op in region:
        if isinstance(op, Map) and op.fn == "where" and is_by_rows(op):
            load = loads.get(op.args[1])
            if load and load.tensor.name not in stored and not load.in_order:
                yield from ((op, load),) if used[load.result] == 1 else ()


def is_by_rows(op: Map) -> bool:
    """Whether a choice is between fragments of such elements, by a condition for each row."""
    cond, chosen, other = op.args
    kind = op.result.type
    return (
        isinstance(kind, Fragment)
        and kind.rows > 1
        and kind.columns > 1
        and (kind.dtype.bits == 8 or (kind.dtype.bits == 16 and kind.dtype.is_float))
        and chosen.type == other.type == kind
        and cond.type == Fragment(BOOL, kind.rows, 1)
    )
