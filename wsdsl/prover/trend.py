"""What a join forgets of one stage of a ring, the next joins would forget of the stages before it,
one at a time, as the ring goes round. It is forgotten of all of them at once.
"""

from __future__ import annotations

from typing import Any

from wsdsl.prover.machine import Machine
from wsdsl.prover.places import Barriers, Items, Places

Stage = tuple[int, int, int]
"""(CTA, array, stage from where its ring is said to begin)."""


class Trend:
    """The stages of the rings in one state, as far as they look alike."""

    def __init__(
        self,
        m: Machine,
        places: Places,
        ring_of: dict[tuple[int, int], int],
        barriers: Barriers,
        items: Items,
    ) -> None:
        """`ring_of`: the family of an array, by (CTA, array), where it turns."""
        self.places, self.ring_of = places, ring_of
        self.holders = {where: n for n, (where, _, _) in enumerate(barriers)}
        self.looks: dict[tuple[int, int], list[Any]] = {}
        for where, flip, h in barriers:
            if where[:2] in ring_of:
                cta, array, n = where
                look = cta, array, h.phase & 1 ^ flip, h.pending, h.tx, h.arrivals, h.initialised
                self._look(ring_of[cta, array], n).append(look)
        for (cta, array, n), key in items:
            if (cta, array) in ring_of:
                look = cta, array, tuple((s.start, s.end) for s in m.memory[key])
                self._look(ring_of[cta, array], n).append(look)
        self.before: dict[int, int] = {}
        self.moved: dict[int, int] = {}

    def _look(self, ring: int, n: int) -> list[Any]:
        return self.looks.setdefault((ring, n), [])

    def follow(self, gone: list[int], new: list[int]) -> None:
        """Add to what is not known, to each who knows, what will follow from what is new."""
        named = {n: where for where, n in self.holders.items()}
        for holder, mask in enumerate(new):
            if not mask:
                continue
            stage = named.get(holder // 2)
            if stage is None or self._ring(stage) < 0:
                while mask:
                    mask = self._shift(mask)
                    gone[holder] |= mask
                continue
            fixed = mask & ~self._of_ring(mask, self._ring(stage))
            mask ^= fixed
            while mask | fixed:
                stage = self._previous(stage)
                if stage is None:
                    break
                mask = self._shift(mask)
                gone[2 * self.holders[stage] + holder % 2] |= mask | fixed

    def _ring(self, stage: Any) -> int:
        return self.ring_of.get(stage[:2], -1)

    def _previous(self, stage: Stage) -> Stage | None:
        """The stage before it, if it looks the same."""
        ring, n = self._ring(stage), stage[2]
        if ring < 0 or not n or self.looks[ring, n] != self.looks[ring, n - 1]:
            return None
        return stage[0], stage[1], n - 1

    def _of_ring(self, mask: int, ring: int) -> int:
        kept = 0
        while mask:
            bit = mask & -mask
            mask ^= bit
            stage = _stage(self.places.names[bit.bit_length() - 1])
            if stage is not None and self._ring(stage) == ring:
                kept |= bit
        return kept

    def _shift(self, mask: int) -> int:
        """The same events, of the stages before."""
        made = self.moved.get(mask)
        if made is None:
            made, rest = 0, mask
            while rest:
                bit = rest & -rest
                rest ^= bit
                made |= self._shifted(bit)
            self.moved[mask] = made
        return made

    def _shifted(self, bit: int) -> int:
        made = self.before.get(bit)
        if made is None:
            name = self.places.names[bit.bit_length() - 1]
            stage = _stage(name)
            previous = None if stage is None else self._previous(stage)
            if previous is None:
                made = 0
            elif name[0] is stage:
                made = self.places.bit((previous, *name[1:]))
            else:
                made = self.places.bit(((previous, *name[0][1:]), *name[1:]))
            self.before[bit] = made
        return made


def _stage(name: Any) -> Stage | None:
    """The stage of a ring that a place may belong to: a barrier's, or that of an item's bytes."""
    where = name[0]
    if isinstance(where, tuple) and len(where) == 3:  # pyright: ignore[reportUnknownArgumentType]
        held: tuple[Any, Any, Any] = where  # pyright: ignore[reportUnknownVariableType]
        if isinstance(held[0], tuple):
            return held[0]  # pyright: ignore[reportUnknownVariableType]
        if isinstance(held[0], int):
            return held
    return None
