"""What of a part of a kernel depends on an index."""

from __future__ import annotations

from wsdsl.ir.op import Region, Value, bound, operands, regions, results_of
from wsdsl.ir.tile_ops import ForEach, ForTiles, If
from wsdsl.ir.walk import walk, yielded


def depending(body: Region, index: Value) -> set[Value]:
    """The index, and what is computed from it, handed on by loops and conditions as well."""
    known, before = {index}, 0
    while len(known) > before:
        before = len(known)
        for op in walk(body):
            if known & {*operands(op)}:
                known |= {*results_of(op), *bound(op)}
            args = op.args if isinstance(op, (ForTiles, ForEach)) else ()
            for region in regions(op):
                for n, value in enumerate(yielded(region)):
                    if value in known:
                        known |= {*results_of(op)[n : n + 1], *args[n : n + 1]}
    return known


def loops_depend(body: Region, varies: set[Value]) -> bool:
    """Whether how often a loop runs, or what a condition takes, does."""
    return any(
        isinstance(op, (ForTiles, ForEach, If)) and varies & {*operands(op)}
        for op in walk(body)
        if regions(op)
    )
