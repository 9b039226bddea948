"""Stores to elements that a warpgroup may have stored before: they must not overtake each other.

TMA stores are not ordered among themselves. Two stores of a tensor may meet, unless a dimension has
different numbers in them; and a store meets itself in a loop that does not say where it goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from wsdsl.ir.barrier_ops import ForRange
from wsdsl.ir.op import Region, Value, regions, results_of
from wsdsl.ir.tile_ops import Constant, Store
from wsdsl.ir.walk import definers, walk


def stored_again(body: Region) -> set[Value]:
    """The tensors of which a partition may store an element twice."""
    made = definers(body)
    numbers = {v: op.value for v, op in made.items() if isinstance(op, Constant)}
    stores = [op for op in walk(body) if isinstance(op, Store)]
    found = {op.tensor for op, placed in _placed(body, ()) if not placed}
    for a, b in combinations(stores, 2):
        if a.tensor == b.tensor and not _apart(a, b, numbers):
            found.add(a.tensor)
    return found


def _apart(a: Store, b: Store, numbers: dict[Value, int | float | bool]) -> bool:
    pairs = ((numbers.get(x), numbers.get(y)) for x, y in zip(a.index, b.index, strict=True))
    return any(x is not None and y is not None and x != y for x, y in pairs)


def _placed(region: Region, around: tuple[set[Value], ...]) -> Iterator[tuple[Store, bool]]:
    """Stores, and whether every loop around them has a say in where they go."""
    for op in region:
        if isinstance(op, Store):
            yield op, all(inside & {*op.index} for inside in around)
        inner = around
        if isinstance(op, ForRange):
            inside = {v for o in walk(op.body) for v in results_of(o)}
            inner = (*around, inside | {op.index, *op.args})
        for body in regions(op):
            yield from _placed(body, inner)
