"""All that is known in a state, as masks of events in a fixed order: taken out, and put back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wsdsl.prover.iterations import shown_term
from wsdsl.prover.machine import ALL, Barrier, Machine


def masks_of(
    m: Machine, barriers: list[tuple[Any, int, Barrier]], names: dict[int, int]
) -> list[int]:
    """What is known, to each who knows; `put_masks` takes it back in the same order."""
    masks: list[int] = []
    for a in m.agents:
        acting = m.model.codes[a.partition].acting[a.pc]
        masks += [k if c in acting and not a.ended else -1 for c, k in enumerate(a.know)]
        masks.append(a.did)
        for c in (-1, *ALL):
            masks.append(_all(e for index, k, e in m.unshown if (index, k) == (a.index, c)))
        for g in (*a.groups, a.open):
            masks += [g.events, g.passed]
        for stored in (*a.stores, a.open_stores):
            masks += stored
    for _, _, held in barriers:
        masks += [held.gathered, held.completed]
    for _, flag in sorted(m.flags.items(), key=lambda f: repr(shown_term(f[0], names))):
        masks.append(flag.gathered)
    return masks


def put_masks(
    m: Machine,
    barriers: list[tuple[Any, int, Barrier]],
    names: dict[int, int],
    masks: list[int],
) -> None:
    held_by = iter(masks)
    unshown: list[tuple[int, int, int]] = []
    for a in m.agents:
        for c in ALL:
            known = next(held_by)
            if known >= 0:
                a.know[c] = known
        a.did = next(held_by)
        for c in (-1, *ALL):
            still = next(held_by)
            unshown += [(a.index, c, still)] if still else []
        for g in (*a.groups, a.open):
            g.events, g.passed = next(held_by), next(held_by)
        a.stores = [(next(held_by), next(held_by)) for _ in a.stores]
        a.open_stores = next(held_by), next(held_by)
    m.unshown = unshown
    for _, _, held in barriers:
        held.gathered, held.completed = next(held_by), next(held_by)
    for _, flag in sorted(m.flags.items(), key=lambda f: repr(shown_term(f[0], names))):
        flag.gathered = next(held_by)


def _all(masks: Iterable[int]) -> int:
    made = 0
    for mask in masks:
        made |= mask
    return made


def moved(mask: int, copies: dict[int, int]) -> int:
    made = 0
    while mask:
        bit = mask & -mask
        mask ^= bit
        made |= copies[bit]
    return made
