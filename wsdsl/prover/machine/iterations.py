"""Iterations of loops of unknown trip counts: which still matter, and what they are called."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import Any

from wsdsl.ir.op import Region, operands, walk
from wsdsl.ir.ops import Loop
from wsdsl.ir.types import Barriers
from wsdsl.prover.machine.machine import ENDED, NOBODY, Agent, Machine
from wsdsl.prover.machine.symbolic_terms import of_any_iteration, test_of


def name_iterations(m: Machine, hurry: bool) -> dict[int, int]:
    """New numbers of the iterations that someone is in, or may come to; others are dropped. With
    `hurry` also what was decided of them and agents rarely ask for again: should somebody do
    so after all, both ways are followed."""
    names: dict[int, int] = {}
    reach: list[set[int]] = []
    for a in m.agents:
        mine: set[int] = {0}
        for frame in a.frames:
            if frame[0] == "open":
                _follow(m, frame[1], mine, names)
        reach.append(mine)
    kept: set[Any] = set()
    changed = True
    while changed:
        changed = False
        for key, first in m.loops.items():
            if key in kept:
                continue
            parent = key[2]
            waits = [a for a in m.agents if parent in reach[a.index] and may_enter(m, a, key)]
            if waits:
                kept.add(key)
                changed = True
                for a in waits:
                    _follow(m, first, reach[a.index], names)
    for a in m.agents:
        for slot in m.model.codes[a.partition].live[a.pc]:
            held = a.slots[slot]
            if isinstance(held, tuple):
                for i in sorted(_spoken_of(held)):
                    names.setdefault(i, len(names) + 1)
    m.loops = {k: v for k, v in m.loops.items() if k in kept}
    m.entered = {k: v for k, v in m.entered.items() if k in kept}
    m.following = {i: v for i, v in m.following.items() if i in names}
    m.iterations = {i: v for i, v in m.iterations.items() if i in names}
    m.facts = {
        k: v
        for k, v in m.facts.items()
        if _alive(k, names) and (not hurry or _may_ask(m, k, reach))
    }
    for a in m.agents:
        if any(not _alive(k[1:], names) or (k[0] and k[0] not in names) for k in a.counts):
            a.counts = {
                k: v
                for k, v in a.counts.items()
                if _alive(k[1:], names) and (not k[0] or k[0] in names)
            }
    return names


def may_enter(m: Machine, a: Agent, key: Any) -> bool:
    """Could the agent yet run a loop with the bounds in the key, if it comes to its iteration?"""
    signature, _, parent, *bounds = key
    if a.ended or m.entered.get(key, 0) >> a.index & 1:
        return False
    code = m.model.codes[a.partition]
    passed, end = _passed(a, parent), inf
    for frame in a.frames if parent != NOBODY else ():
        if frame[0] == "open" and frame[1] == parent:
            end = code.loops[frame[-1]][1]
    outer = m.iterations.get(parent)
    for at, slots, around in code.bounds.get(signature, ()):
        if outer is not None and outer.signature not in around:
            continue
        if passed <= at <= end and all(
            slot not in code.constant or a.slots[slot] in (None, bound)
            for slot, bound in zip(slots, bounds, strict=True)
        ):
            return True
    return False


def _may_ask(m: Machine, test: Any, reach: list[set[int]]) -> bool:
    """Could somebody yet ask for it, where such tests were seen to be asked for?"""
    spoken = set(_spoken_of(test))
    if not spoken or not spoken.issubset(m.iterations):
        return True
    asked_at = m.model.made_at if m.each_iteration else m.model.asked_at
    places = asked_at.get(of_any_iteration(test_of(test)), set())
    for a in m.agents:
        if a.ended or not spoken.issubset(reach[a.index]):
            continue
        within = [frame[0] == "open" and frame[1] in spoken for frame in a.frames]
        loops, passed, end = m.model.codes[a.partition].loops, 0, inf
        if True in within:
            last = len(within) - within[::-1].index(True) - 1
            end = loops[a.frames[last][-1]][1]
            # A test of an inner loop is asked for again.
            passed = loops[a.frames[last + 1][-1]][0] if last + 1 < len(within) else a.pc
        if any(partition == a.partition and passed <= at <= end for partition, at in places):
            return True
    return False


def _passed(a: Agent, parent: int) -> int:
    """The place up to which the agent's code follows it in an iteration, while that lasts."""
    within = a.frames
    if parent != NOBODY:
        outer = [f[0] == "open" and f[1] == parent for f in a.frames]
        if True not in outer:
            return 0  # it is still to come there
        within = a.frames[outer.index(True) + 1 :]
    # A counted loop goes back within its parent's iteration.
    return 0 if any(f[0] == "counted" for f in within) else a.pc


def _follow(m: Machine, iteration: int, found: set[int], names: dict[int, int]) -> None:
    while iteration != ENDED and iteration not in found:
        found.add(iteration)
        names.setdefault(iteration, len(names) + 1)
        iteration = m.following.get(iteration, ENDED)


@lru_cache(maxsize=1 << 14)
def _spoken_of(term: Any) -> tuple[int, ...]:
    """The iterations that a term or key, a tuple, names anywhere."""
    if len(term) == 2 and term[0] in ("index", "next"):
        return (term[1],)
    return tuple(i for x in term if isinstance(x, tuple) for i in _spoken_of(x))


def _alive(term: Any, names: dict[int, int]) -> bool:
    return not isinstance(term, tuple) or all(i in names for i in _spoken_of(term))


def shown_term(term: Any, names: dict[int, int]) -> Any:
    if type(term) is tuple and (spoken := _spoken_of(term)):
        return _renamed(term, tuple([names.get(i, -1) for i in spoken]))
    return term  # pyright: ignore[reportUnknownVariableType]


@lru_cache(maxsize=1 << 14)
def _renamed(term: tuple[Any, ...], numbers: tuple[int, ...]) -> tuple[Any, ...]:
    """With the iterations exchanged that it speaks of, in that order."""
    new = iter(numbers)

    def renamed(x: Any) -> Any:
        if type(x) is not tuple:
            return x
        if len(x) == 2 and x[0] in ("index", "next"):
            return (x[0], next(new))
        return tuple([renamed(y) for y in x])

    return renamed(term)


def shown_key(key: Any, names: dict[int, int], at: int = 2) -> Any:
    """A loop's key: the parent's number stands bare at `at`."""
    parts = list(key)
    parts[at] = names.get(parts[at], 0)
    return tuple([shown_term(x, names) for x in parts])


Loops = Mapping[Any, Sequence[tuple[Loop, Region]]]
"""Of a partition, in order: those of each shape that all who run them have to agree about, and
where they stand."""


def loop_places(partitions: Sequence[Loops]) -> dict[int, int]:
    """By the `id` of a loop its place among those of its shape, of shapes that a partition runs
    less often than others, one after another, and all agree at synchronization.
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


def _places(loops: Sequence[Loop], whole: Sequence[Sequence[set[str]]]) -> list[int]:
    """Nothing, if they are met in no place, or in several."""
    found = list[int]()
    for n, loop in enumerate(loops):
        met = {_met(_barriers(loop), held) for held in whole} - {None}
        if len(loops) == len(whole[0]):
            met.add(n)
        found += [place for place in met if place is not None] if len(met) == 1 else []
    return found if len(found) == len(loops) else []


def _barriers(loop: Loop) -> set[str]:
    return {v.name for op in walk(loop.body) for v in operands(op) if isinstance(v.type, Barriers)}


def _met(own: set[str], held: Sequence[set[str]]) -> int | None:
    """The one of all loops that has one of these barriers alone, if there is one."""
    alone = [name for name in own if sum(name in other for other in held) == 1]
    places = {n for n, other in enumerate(held) if other.intersection(alone)}
    return places.pop() if len(places) == 1 else None
