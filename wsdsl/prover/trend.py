"""What a join forgets of one stage of a ring, the next joins would forget of the stages before it,
one at a time, as the ring goes round. It is forgotten of all of them at once.
"""

from __future__ import annotations

from typing import Any

from wsdsl.prover.knowledge import Barriers
from wsdsl.prover.machine import Machine
from wsdsl.prover.places import Items, Places, Stage


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
        self.ring_of = ring_of
        self.holders = {where: n for n, (where, _, _) in enumerate(barriers)}
        self.looks: dict[tuple[int, int], list[Any]] = {}
        for where, flip, h in barriers:
            ring = ring_of.get(where[:2])
            if ring is not None:
                look = where[:2], h.phase & 1 ^ flip, h.pending, h.tx, h.arrivals, h.initialised
                self.looks.setdefault((ring, where[2]), []).append(look)
        for where, key in items:
            ring = ring_of.get(where[:2])
            if ring is not None:
                cuts = [s.start for s in m.memory[key]]
                self.looks.setdefault((ring, where[2]), []).append((where[:2], cuts))
        self.of_ring: dict[int, int] = {}
        self.alike = 0
        """Events of stages that look like the stage before."""
        for stage, bits in places.of_stage.items():
            ring = ring_of.get(stage[:2])
            if ring is not None:
                self.of_ring[ring] = self.of_ring.get(ring, 0) | bits
                if self._before(stage):
                    self.alike |= bits

    def follow(self, gone: list[int], new: list[int]) -> None:
        """Add to what is not known, to each who knows, what will follow from what is new."""
        stages = list(self.holders)
        for holder, mask in enumerate(new):
            if not mask:
                continue
            stage = stages[holder // 2] if holder < 2 * len(stages) else None
            ring = None if stage is None else self.ring_of.get(stage[:2])
            if ring is None:
                rest = mask
                while rest:
                    rest = (rest & self.alike) >> 1
                    gone[holder] |= rest
                rest = mask
                while rest:
                    rest = rest << 1 & self.alike
                    gone[holder] |= rest
                continue
            fixed = mask & ~self.of_ring[ring]
            for up in (False, True):
                rest, at = mask ^ fixed, stage
                while rest | fixed:
                    at = self._next(at) if up else self._before(at)
                    if at is None:
                        break
                    rest = rest << 1 & self.alike if up else (rest & self.alike) >> 1
                    gone[2 * self.holders[at] + holder % 2] |= rest | fixed

    def _before(self, stage: Any) -> Stage | None:
        """The stage before it, if it looks the same."""
        cta, array, n = stage
        ring = self.ring_of[cta, array]
        if not n or self.looks[ring, n] != self.looks[ring, n - 1]:
            return None
        return cta, array, n - 1

    def _next(self, stage: Any) -> Stage | None:
        cta, array, n = stage
        after = cta, array, n + 1
        return after if after in self.holders and self._before(after) is not None else None
