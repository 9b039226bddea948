"""All that is known in a state, as masks of events in a fixed order: taken out, and put back."""

from struct import Struct
from typing import Any

from wsdsl.prover.machine.machine import ALL, CLASSES, WARPS, Agent, Barrier, Machine, union

Barriers = list[tuple[Any, int, Barrier]]
"""(place, change of parity, barrier)."""
WORD = 64


def masks_of(m: Machine, barriers: Barriers) -> list[int]:
    """Events seen, by observer; `put_masks` takes it back in the same order. The barriers'
    come first, two of each."""
    masks: list[int] = []
    for _, _, held in barriers:
        masks += [held.gathered, held.completed]
    for a in m.agents:
        masks += _by_class(m, a)
        masks += [a.did, a.met]
        for c in (-1, *ALL):
            masks.append(union(e for index, k, e in m.unshown if (index, k) == (a.index, c)))
        for g in (*a.groups, a.open):
            masks += [g.events, g.passed]
        for stored in (*a.stores, a.open_stores):
            masks += stored
    return masks


def _by_class(m: Machine, a: Agent) -> list[int]:
    """Classes that do nothing any more count as one: only the end of its CTA checks what they
    know. -1 means no events, of no observer."""
    acting = 0 if a.ended else len(m.model.codes[a.partition].acting[a.pc])
    return [*a.know[:acting], union(a.know[acting:]), *([-1] * CLASSES)][:CLASSES]


def put_masks(m: Machine, barriers: Barriers, masks: list[int]) -> None:
    held_by = iter(masks)
    for _, _, held in barriers:
        held.gathered, held.completed = next(held_by), next(held_by)
    unshown: list[tuple[int, int, int]] = []
    for a in m.agents:
        a.know = [max(next(held_by), 0) for _ in ALL]
        a.did, a.met = next(held_by), next(held_by)
        for c in (-1, *ALL):
            still = next(held_by)
            unshown += [(a.index, c, still)] if still else []
        for g in (*a.groups, a.open):
            g.events, g.passed = next(held_by), next(held_by)
        a.stores = [tuple([next(held_by) for _ in WARPS]) for _ in a.stores]
        a.open_stores = tuple([next(held_by) for _ in WARPS])
    m.unshown = unshown


def moved(masks: list[int], copies: dict[int, int], kept: int) -> list[int]:
    """The masks, negative ones excepted, with each event exchanged for its copies, others left out;
    those that are `kept` stay as well. Only words are gone through by which a mask differs from the
    last."""
    live, every = union(copies), union(copies.values())
    size = live.bit_length() // WORD + 1
    read = Struct(f"<{size}Q").unpack
    tables: list[dict[int, int]] = [{} for _ in range(size)]
    for bit, made in copies.items():
        place, rest = divmod(bit.bit_length() - 1, WORD)
        tables[place][1 << rest] = made
    done: dict[int, int] = {0: 0, live: every}
    last, last_made = 0, 0
    result: list[int] = []
    for mask in masks:
        if mask < 0:
            result.append(mask)
            continue
        stays = mask & kept
        mask &= live
        made = done.get(mask)
        if made is None:
            near, made = mask ^ last, last_made
            if mask.bit_count() < near.bit_count():
                near, made = mask, 0
            words = near.to_bytes(8 * size, "little")
            for word, table in zip(read(words), tables, strict=True):
                if not word:
                    continue
                copied = table.get(word)
                if copied is None:
                    copied, rest = 0, word
                    while rest:
                        bit = rest & -rest
                        rest ^= bit
                        copied |= table[bit]
                    table[word] = copied
                made ^= copied
            done[mask] = last_made = made
            last = mask
        result.append(made | stays)
    return result
