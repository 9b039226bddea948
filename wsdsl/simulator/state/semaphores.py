"""Semaphores in global memory, on which CTAs arrive and for which others wait.

A waiting thread may have polled at any time before: it sees accesses before the earliest arrival
that could have let it pass, not all accesses so far.
"""

from dataclasses import dataclass

import numpy as np

from wsdsl.simulator.state.vector_clocks import Clock, Clocks

Location = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class _Change:
    """The flag's value since a change, the thread that made it, and what has been released."""

    value: int
    component: int
    epoch: int
    released: Clock
    plain: bool = False


class Flags:
    def __init__(self, clocks: Clocks) -> None:
        self.clocks = clocks
        self._changes: dict[Location, list[_Change]] = {}

    def _history(self, at: Location, value: int) -> list[_Change]:
        """All changes; the first is what the host has written, which everyone has seen."""
        return self._changes.setdefault(at, [_Change(value, 0, 0, self.clocks.empty())])

    def arrive(
        self, at: Location, before: int, after: int, actor: slice, release: bool = True
    ) -> str:
        """A release: a thread that sees it, or an arrival after it, sees all that the actor has
        seen; or a relaxed one, which forwards earlier releases.

        Return the fault, or "".
        """
        history = self._history(at, before)
        last = history[-1]
        if last.plain and not self._seen(last, actor):
            return "it is unordered with a plain store to that flag"
        epoch = int(self.clocks.own[actor.start])
        clock = last.released
        if release:
            clock = np.maximum(clock, self.clocks.release(actor))
        history.append(_Change(after, actor.start, epoch, clock))
        return ""

    def store(self, at: Location, before: int, after: int, actors: slice) -> str:
        """A plain store, which releases nothing."""
        history = self._history(at, before)
        if not self._seen(history[-1], actors):
            return "it is unordered with an semaphore_arrive on that flag"
        epoch = int(self.clocks.own[actors.start])
        history.append(_Change(after, actors.start, epoch, self.clocks.empty(), plain=True))
        return ""

    def _seen(self, change: _Change, actors: slice) -> bool:
        return int(self.clocks.seen[actors, change.component].min()) >= change.epoch

    def acquire(self, at: Location, now: int, count: int, actors: slice) -> None:
        """The actors have found the flag to be at least `count`."""
        history = self._history(at, now)
        found = history[-1]
        for change in reversed(history):
            if change.value >= count:
                found = change
            if self._seen(change, actors):
                break
        self.clocks.acquire(actors, found.released)
