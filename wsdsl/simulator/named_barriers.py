"""One round of a CTA's named barrier: who has come, and how many must."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from wsdsl.ir.op import Op
from wsdsl.simulator.clocks import Clock, Clocks

NUM_NAMED = 15
"""Barrier 0 is sync_cta's."""


class Meeting:
    """One round. Each who came early keeps it, since the next may end before it has woken up."""

    def __init__(self, expected: int, op: Op, clocks: Clocks) -> None:
        self.expected, self.opened_by = expected, op
        self.names: dict[Hashable, str] = {}
        self.clock: Clock = clocks.empty()

    @property
    def complete(self) -> bool:
        return len(self.names) == self.expected

    def come(self, who: Hashable, name: str, clock: Clock) -> None:
        self.names[who] = name
        np.maximum(self.clock, clock, out=self.clock)

    def state(self) -> str:
        there = ", ".join(self.names.values())
        return f"{len(self.names)} of {self.expected} warpgroups are there ({there})"
