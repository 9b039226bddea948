"""Facts unknown of one stage of a pipeline are unknown of another when the pipeline has gone
round: it is forgotten of all stages that look the same at once, rather than of one after the other.
"""

from collections.abc import Sequence
from typing import Any

from wsdsl.prover.machine.event_renaming import Items, Places, Stage
from wsdsl.prover.machine.knowledge_masks import Barriers
from wsdsl.prover.machine.machine import Machine


class StageSymmetry:
    """The stages of the pipelines in one state, as far as they look alike."""

    def __init__(
        self,
        m: Machine,
        places: Places,
        ring_of: dict[tuple[int, int], int],
        barriers: Barriers,
        items: Items,
        held: Sequence[tuple[int, int, Any]],
    ) -> None:
        """`ring_of`: the family of an array, by (CTA, array), if it rotates. `held`: families and
        stages that somebody is at, and who: he may know more of that stage than of others."""
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
        for ring, n, who in held:
            looks.setdefault((ring, n), []).append(who)
        self.same = {(ring, n) for (ring, n), it in looks.items() if it == looks.get((ring, n - 1))}
        """The stages of pipelines that look like the one before."""
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
        """Facts that an observer lacks of a stage it lacks of equal stages."""
        made = unknown.copy()
        over: dict[int, int] = {0: 0}
        stages = [*self.holders]
        turning = [where[:2] in self.ring_of for where in stages]
        for holder, mask in enumerate(unknown):
            if holder >= 2 * len(stages) or not turning[holder // 2]:
                found = over.get(mask)
                if found is None:
                    found = over[mask] = self._over(mask)
                made[holder] |= found
        stages = [where for where, turns in zip(stages, turning) if turns]
        for second in (0, 1):
            self._turn(made, unknown, stages, second, up=True)
            self._turn(made, unknown, stages[::-1], second, up=False)
        return made

    def _turn(
        self, made: list[int], unknown: list[int], stages: list[Stage], second: int, up: bool
    ) -> None:
        """A barrier of a stage rotates with the pipeline, and its other facts stay. Of the
        first or second of each barrier's masks; `stages` in the order in which they are gone to.
        """
        come: dict[Stage, tuple[int, int]] = {}
        """Facts that a stage gets from those before: some rotate, others stay."""
        for where in stages:
            cta, array, n = where
            ring = self.ring_of[cta, array]
            own, holder = self.of_ring.get(ring, 0), 2 * self.holders[where] + second
            turned, fixed = come.get(where, (0, 0))
            made[holder] |= turned | fixed
            if (ring, n + up) in self.same:
                turned, fixed = turned | unknown[holder] & own, fixed | unknown[holder] & ~own
                turned = turned << 1 & self.alike if up else (turned & self.alike) >> 1
                come[cta, array, n + 1 if up else n - 1] = turned, fixed

    def _over(self, mask: int) -> int:
        """The events, of all stages like theirs."""
        made = down = up = mask
        while down | up:
            down, up = (down & self.alike) >> 1, up << 1 & self.alike
            made |= down | up
        return made
