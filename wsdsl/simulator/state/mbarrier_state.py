"""mbarriers, with the hardware's arithmetic: pending arrivals, a signed tx-count, phases."""

from collections.abc import Hashable

import numpy as np

from wsdsl.ir.op import Op
from wsdsl.record import record
from wsdsl.simulator.state.vector_clocks import Clock, Clocks

TX_LIMIT = (1 << 20) - 1


@record
class RemoteArrival:
    """The last arrival that a thread of another CTA has made on a barrier: over for who has seen
    `epoch` of a component of the clocks.
    """

    who: str
    op: Op
    component: int
    epoch: int


class Barrier:
    """One mbarrier. Methods that may be misused answer with what is wrong, or "" if nothing is."""

    def __init__(
        self, name: tuple[str, int, int, str], arrivals: int, component: int, clocks: Clocks
    ) -> None:
        """`name`: label, stage, CTA, and the suffix that tells CTAs apart in messages."""
        self.label, self.stage, self.cta, self.suffix = name
        self.arrivals = arrivals
        self.remote: dict[int, RemoteArrival] = {}
        self.component, self.clocks = component, clocks
        self.initialised: tuple[int, int] | None = None
        self.shown = False
        """Whether the cluster has synchronized after the fence that followed the initialization."""
        self.phase, self.pending, self.tx_count = 0, arrivals, 0
        self.completed: Clock = clocks.empty()
        self.gathering: Clock = clocks.empty()

    def __str__(self) -> str:
        return f"`{self.label}` stage {self.stage}{self.suffix}"

    def state(self) -> str:
        return (
            f"phase {self.phase}, {self.pending} of {self.arrivals} arrivals pending, "
            f"tx-count {self.tx_count}"
        )

    def initialise(self, component: int) -> str:
        if self.initialised is not None:
            return f"{self} is initialized twice"
        self.initialised = component, int(self.clocks.own[component])
        return ""

    def unusable(self, actors: slice, meeting: str) -> str:
        """Why the actors may not use the barrier: its initialization is not visible to them.

        `meeting` is the op that would make it visible.
        """
        if self.initialised is None:
            return f"{self} is used before its initialization"
        if self.shown:
            return ""
        component, epoch = self.initialised
        fence = self.clocks.fenced(self.clocks.init_fences, component, epoch)
        if fence is None:
            return f"{self} is used, but no fence_mbarrier_init followed its initialization"
        if int(self.clocks.seen[actors, component].min()) < fence:
            return f"{self} is used without a {meeting} after its initialization"
        return ""

    def show_initialised(self) -> None:
        """The cluster synchronizes; a fence before that is complete."""
        if self.initialised is not None:
            component, epoch = self.initialised
            self.shown |= self.clocks.fenced(self.clocks.init_fences, component, epoch) is not None

    def passes(self, parity: int) -> bool:
        """try_wait.parity: has the phase of that parity completed?"""
        return self.phase & 1 != parity

    def too_early(self, parity: int, actors: slice) -> str:
        """Why a wait may pass before its phase: the one before it may not be complete yet, and has
        the same parity as the one after.
        """
        awaited = self.phase - 1 if self.passes(parity) else self.phase
        if int(self.clocks.seen[actors, self.component].min()) < awaited:
            return (
                f"this wait may pass too early: no wait orders it after the phase of {self} before "
                "the awaited phase"
            )
        return ""

    def arrive(self, count: int, clock: Clock) -> str:
        if count > self.pending:
            return (
                f"{count} arrival{'s' if count > 1 else ''} on {self}, whose phase {self.phase} "
                f"awaits {self.pending} more of {self.arrivals} (tx-count {self.tx_count})"
            )
        if int(clock[self.component]) < self.phase:
            return (
                f"an arrival on {self} may count in its phase {self.phase - 1}: no wait makes sure "
                "that this phase is complete"
            )
        np.maximum(self.gathering, clock, out=self.gathering)
        self.pending -= count
        return self._settle()

    def expect(self, tx_bytes: int) -> str:
        self.tx_count += tx_bytes
        if not -TX_LIMIT <= self.tx_count <= TX_LIMIT:
            return f"{self}: the tx-count {self.tx_count} is out of range"
        return ""

    def complete_tx(self, tx_bytes: int, phases: Clock) -> str:
        """Bytes have landed; they may come before they are expected, within one phase.

        `phases`: the phases that were complete when the copy was issued.
        """
        np.maximum(self.gathering, phases, out=self.gathering)
        self.tx_count -= tx_bytes
        return self._settle()

    def _settle(self) -> str:
        if self.pending:
            return ""
        if self.tx_count < 0:
            return (
                f"{self}: tx-count underflow, {-self.tx_count} bytes more than phase "
                f"{self.phase} expected"
            )
        if self.tx_count == 0:
            self.phase += 1
            self.pending = self.arrivals
            np.maximum(self.completed, self.gathering, out=self.completed)
            self.completed[self.component] = self.phase
            self.gathering = self.clocks.empty()
        return ""


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
        return f"{len(self.names)} of {self.expected} warpgroups have arrived ({there})"
