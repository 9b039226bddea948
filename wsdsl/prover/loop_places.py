"""Which of several loops that run equally often is meant, where partitions do not run all of them.

Loops are told apart by how many were before them. A partition that runs fewer of them than others
is met in one of those: there, and in no other, both use a barrier of this loop. (Whichever is taken
runs as often: what is chosen decides whether a proof is found, and not whether it is true.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wsdsl.ir.barrier_ops import ForRange
from wsdsl.ir.op import Region, operands
from wsdsl.ir.types import Barriers
from wsdsl.ir.walk import walk

Loops = Mapping[Any, Sequence[tuple[ForRange, Region]]]
"""Of a partition, in order: those of each shape that all who run them have to agree about, and
where they stand."""


def loop_places(partitions: Sequence[Loops]) -> dict[int, int]:
    """By the `id` of a loop its place among those of its shape, of shapes of which a partition runs
    fewer than others, one behind the other, and all agree where they meet.
    """
    found = dict[int, int]()
    for shape in dict.fromkeys(shape for own in partitions for shape in own):
        held = [own[shape] for own in partitions if shape in own]
        if any(len({id(block) for _, block in own}) > 1 for own in held):
            continue
        runs = [[loop for loop, _ in own] for own in held]
        most = max(map(len, runs))
        whole = [[_barriers(loop) for loop in loops] for loops in runs if len(loops) == most]
        places = [_places(loops, whole) for loops in runs]
        if len(whole) < len(runs) and all(own and len({*own}) == len(own) for own in places):
            for loops, own in zip(runs, places, strict=True):
                found |= {id(loop): n for loop, n in zip(loops, own, strict=True)}
    return found


def _places(loops: Sequence[ForRange], whole: Sequence[Sequence[set[str]]]) -> list[int]:
    """Nothing, if they are met in no place, or in several."""
    found = list[int]()
    for n, loop in enumerate(loops):
        met = {_met(_barriers(loop), held) for held in whole} - {None}
        if len(loops) == len(whole[0]):
            met.add(n)
        found += [place for place in met if place is not None] if len(met) == 1 else []
    return found if len(found) == len(loops) else []


def _barriers(loop: ForRange) -> set[str]:
    return {v.name for op in walk(loop.body) for v in operands(op) if isinstance(v.type, Barriers)}


def _met(own: set[str], held: Sequence[set[str]]) -> int | None:
    """The one of all loops that has one of these barriers alone, if there is one."""
    alone = [name for name in own if sum(name in other for other in held) == 1]
    places = {n for n, other in enumerate(held) if other.intersection(alone)}
    return places.pop() if len(places) == 1 else None
