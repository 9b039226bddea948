"""Hardware units that agents share, and events that they wait for, in predicted cycles."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal


class Unit:
    """Serves one after another, in the order in which they come."""

    def __init__(self) -> None:
        self.free = 0.0
        self.spans: list[tuple[float, float]] = []

    def take(self, at: float, cycles: float) -> tuple[float, float]:
        """From when to when."""
        begin = max(at, self.free)
        self.free = begin + cycles
        if self.spans and self.spans[-1][1] >= begin:
            self.spans[-1] = self.spans[-1][0], self.free
        elif cycles:
            self.spans.append((begin, self.free))
        return begin, self.free


@dataclass
class Channel:
    """An event that several agents may wait for; they are woken when it occurs."""

    waiting: list[object] = field(default_factory=list[object])

    def woken(self) -> list[object]:
        found, self.waiting = self.waiting, []
        return found


class Barrier(Channel):
    """An mbarrier, as the simulator's, whose phases end at a time."""

    def __init__(self, arrivals: int) -> None:
        super().__init__()
        self.arrivals = self.pending = arrivals
        self.phase = self.tx = 0
        self.gathered = self.done = 0.0

    def over(self, parity: int) -> float | None:
        """When the phase of that parity was over; None while it is not."""
        return self.done if self.phase & 1 != parity else None

    def arrive(self, at: float, count: int = 1, tx: int = 0) -> bool:
        """`tx`: bytes that are expected, or (less than 0) have come. Is the phase over?"""
        self.pending -= count
        self.tx += tx
        self.gathered = max(self.gathered, at)
        if self.pending or self.tx:
            return False
        self.phase, self.pending = self.phase + 1, self.arrivals
        self.done, self.gathered = self.gathered, 0.0
        return True


class Meeting(Channel):
    """A barrier of a number of agents, reused in rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.there = self.round = 0
        self.last = 0.0
        self.ends: dict[int, float] = {}

    def come(self, at: float, expected: int) -> tuple[int, bool]:
        """Arrive; return the round, and whether this completes it."""
        own = self.round
        self.there, self.last = self.there + 1, max(self.last, at)
        if self.there < expected:
            return own, False
        self.ends[own] = self.last
        self.there, self.round, self.last = 0, own + 1, 0.0
        return own, True

    def over(self, own: int) -> float | None:
        return self.ends.get(own)


class Flag(Channel):
    """A counter in global memory: times and values of its additions."""

    def __init__(self) -> None:
        super().__init__()
        self.added: list[tuple[float, int]] = []

    def reached(self, count: int) -> float | None:
        for at, there in self._sums():
            if there >= count:
                return at
        return None if count > 0 else 0.0

    def _sums(self) -> Iterator[tuple[float, int]]:
        there = 0
        for at, more in sorted(self.added):
            there += more
            yield at, there


Kind = Literal["MMA", "arithmetic", "SMEM", "loads", "stores", "issue", "DSMEM", "wait", "start"]


@dataclass(frozen=True, slots=True)
class Span:
    """`edge`: the awaited event, or the moved tensor. Cycles since the launch."""

    kind: Kind
    edge: str
    start: float
    stop: float
