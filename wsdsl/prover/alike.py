"""What is not known of one stage of a ring, will not be known of another when the ring has gone
round: it is forgotten of all stages that look the same at once, rather than of one after the other.
"""

from __future__ import annotations

from typing import Any

from wsdsl.prover.knowledge import Barriers
from wsdsl.prover.machine import Machine
from wsdsl.prover.places import Items, Places, Stage


class Alike:
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
        looks: dict[tuple[int, int], list[Any]] = {}
        for where, flip, h in barriers:
            ring = ring_of.get(where[:2])
            if ring is not None:
                look = where[:2], h.phase & 1 ^ flip, h.pending, h.tx, h.arrivals, h.initialised
                looks.setdefault((ring, where[2]), []).append(look)
        for where, key in items:
            ring = ring_of.get(where[:2])
            if ring is not None:
                cuts = [s.start for s in m.memory[key]]
                looks.setdefault((ring, where[2]), []).append((where[:2], cuts))
        self.same = {(ring, n) for (ring, n), it in looks.items() if it == looks.get((ring, n - 1))}
        """The stages of rings that look like the one before."""
        self.of_ring: dict[int, int] = {}
        self.alike = 0
        """Events of stages that look like the stage before."""
        for stage, bits in places.of_stage.items():
            ring = ring_of.get(stage[:2])
            if ring is not None:
                self.of_ring[ring] = self.of_ring.get(ring, 0) | bits
                if (ring, stage[2]) in self.same:
                    self.alike |= bits

    def spread(self, unknown: list[int]) -> list[int]:
        """What is not known of a stage, to each who knows, is not known of those like it."""
        made = unknown.copy()
        stages = list(self.holders)
        for holder, mask in enumerate(unknown):
            if not mask:
                continue
            stage = stages[holder // 2] if holder < 2 * len(stages) else None
            ring = None if stage is None else self.ring_of.get(stage[:2])
            if ring is None:
                made[holder] |= self._over(mask)
                continue
            # A barrier of a stage turns with the ring, and what it knows of other things stays.
            fixed = mask & ~self.of_ring.get(ring, 0)
            for up in (False, True):
                turned, at = mask ^ fixed, self._step(stage, up)
                while at is not None:
                    turned = turned << 1 & self.alike if up else (turned & self.alike) >> 1
                    made[2 * self.holders[at] + holder % 2] |= turned | fixed
                    at = self._step(at, up)
        return made

    def _over(self, mask: int) -> int:
        """The events, of all stages like theirs."""
        made = down = up = mask
        while down | up:
            down, up = (down & self.alike) >> 1, up << 1 & self.alike
            made |= down | up
        return made

    def _step(self, stage: Any, up: bool) -> Stage | None:
        """The stage after or before it, if it looks the same."""
        cta, array, n = stage
        if (self.ring_of[cta, array], n + up) not in self.same:
            return None
        return cta, array, n + 1 if up else n - 1
