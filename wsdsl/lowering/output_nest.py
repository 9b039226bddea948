"""The loops over the output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from wsdsl.ir.op import Kernel, Op, Region, once, regions, results_of
from wsdsl.ir.ranges import walks_a_part
from wsdsl.ir.tile_ops import ForEach, ForTiles, Yield

OpT = TypeVar("OpT", bound=Op)


@once
def output_nest(kernel: Kernel) -> tuple[Sequence[ForTiles | ForEach], Region]:
    """The outermost parallel loops, and what they run; scalar work between them moves inside."""
    body = kernel.body
    nest: list[ForTiles | ForEach] = []
    around: list[Op] = []
    while True:
        inner = [op for op in body if regions(op)]
        if len(inner) != 1 or not isinstance(inner[0], (ForTiles, ForEach)) or inner[0].init:
            break
        loop = inner[0]
        others = [op for op in body if op is not loop and not isinstance(op, Yield)]
        if any(not results_of(op) for op in others) or walks_a_part(loop):
            break
        around += others
        nest.append(loop)
        body = loop.body
    rest = tuple(op for op in body if not (isinstance(op, Yield) and not op.values))
    return nest, (*around, *rest)


def with_loops(region: Region) -> Iterator[tuple[Op, tuple[ForTiles | ForEach, ...]]]:
    """Every op, with the loops that stand around it in the region."""
    return with_outer(region, (ForTiles, ForEach))


def with_outer(
    region: Region, kinds: tuple[type[OpT], ...], around: tuple[OpT, ...] = ()
) -> Iterator[tuple[Op, tuple[OpT, ...]]]:
    """Every op, with the ops of these kinds that stand around it in the region."""
    for op in region:
        yield op, around
        inner = (*around, op) if isinstance(op, kinds) else around
        for body in regions(op):
            yield from with_outer(body, kinds, inner)
