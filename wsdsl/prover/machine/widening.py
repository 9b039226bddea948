"""Drop facts that are hardly of use to other agents: states differ less then, and
where someone needed it after all, the proof is tried again without this.

Events in arrays that one agent alone uses (it stages stores there) are kept to that agent; those of
a CTA's named barriers to that CTA's warpgroups that use such, and to those barriers.
Nothing is kept from who may ask for it: an event that is still asked for shows as one that somebody
has not seen, and states without one do not pass for states with one.
"""

from typing import Any

from wsdsl.prover.machine.event_liveness import EVERY_CTA, ROUND, Ask
from wsdsl.prover.machine.knowledge_masks import Barriers
from wsdsl.prover.machine.machine import ALL, WARPS, Machine, union

SHARED = -1
NAMED = "named"


class Forgetting:
    """Events by the agents that they concern."""

    def __init__(self, m: Machine, asks: list[list[tuple[Ask, ...]]]) -> None:
        self.user: dict[tuple[int, Any], int] = {}
        """Of each array in each CTA: the one agent that ever uses it, or SHARED."""
        self.meets: list[bool] = []
        """Does the agent use named barriers?"""
        for a in m.agents:
            asked = asks[a.partition][0]
            self.meets.append(any(_named(place) for place, _, _, _ in asked))
            for place, _, _, remote in asked:
                for cta in m.model.ctas if remote else (a.cta,):
                    only = a.index if cta == a.cta else SHARED
                    if self.user.setdefault((cta, place), only) != only:
                        self.user[cta, place] = SHARED
        self.private = [0] * len(m.agents)
        self.named = [0] * len(m.model.ctas)

    def place(self, where: Any, stage: tuple[int, int, int] | None, bits: int) -> None:
        """There are new bits, for events at a place."""
        if stage is not None:
            user = self.user.get(stage[:2], SHARED)
            if user != SHARED:
                self.private[user] |= bits
        elif where[0] == NAMED and where[1][0] >= 0 and where[1][1] > 0:
            self.named[where[1][0]] |= bits

    def masks(self, m: Machine, barriers: Barriers) -> list[int]:
        """For each observer, as in `masks_of`: events that it is never taken to see."""
        private, named = union(self.private), union(self.named)
        made: list[int] = []
        for where, _, _ in barriers:
            if where[0] != NAMED:
                hidden = private | named
            elif where[1][0] >= 0:
                hidden = private | named & ~self.named[where[1][0]]
            else:
                hidden = private
            made += (hidden, hidden)
        for a in m.agents:
            stored = len(WARPS) * (len(a.stores) + 1)
            count = 2 * (len(a.groups) + 1) + stored + 3 + 2 * len(ALL)
            own = self.private[a.index]
            if self.meets[a.index]:
                own |= self.named[a.cta]
            made += [(private | named) & ~own] * count
        return made


def _named(place: Any) -> bool:
    return isinstance(place, tuple) and place not in ((ROUND, 0), (ROUND, EVERY_CTA))
