"""Vector clocks: a race is found in any order of the run.

Each warp of a warpgroup counts for two threads, its elected one and all its others: ops distinguish
no more threads. A barrier has a component too, the number of its completed phases; having seen
phase n of a barrier is having seen the copies that counted on it before.
"""

from bisect import bisect_right
from typing import Any

import numpy as np
import numpy.typing as npt

Clock = npt.NDArray[np.int64]

THREADS = 8
"""Components of a warpgroup: (elected, others) of each of 4 warps."""


class Clocks:
    """One clock a thread. An access is stamped with its thread's own count; releases tick it."""

    def __init__(self, num_warpgroups: int, num_barriers: int) -> None:
        rows = THREADS * num_warpgroups
        self.width = rows + num_barriers
        self.seen: Clock = np.zeros((rows, self.width), np.int64)
        self.own: Clock = self.seen.reshape(-1)[:: self.width + 1][:rows]
        self.own += 1
        self.proxy_fences: list[list[int]] = [[] for _ in range(rows)]
        self.global_fences: list[list[int]] = [[] for _ in range(rows)]
        self.init_fences: list[list[int]] = [[] for _ in range(rows)]

    def empty(self) -> Clock:
        return np.zeros(self.width, np.int64)

    def tick(self, actors: slice) -> None:
        self.own[actors] += 1

    def acquire(self, actors: slice, clock: Clock) -> None:
        np.maximum(self.seen[actors], clock, out=self.seen[actors])

    def release(self, actors: slice) -> Clock:
        """The clock of the actors so far; their later accesses follow it."""
        clock: Clock = self.seen[actors].max(axis=0)
        self.own[actors] += 1
        return clock

    def phases_seen(self, actors: slice) -> Clock:
        """Only the phases of barriers that the actors know to be complete."""
        clock: Clock = self.seen[actors].max(axis=0)
        clock[: len(self.seen)] = 0
        return clock

    def sync_warps(self, actors: slice) -> None:
        """The threads of each warp synchronize."""
        pairs: npt.NDArray[Any] = self.seen[actors].reshape(-1, 2, self.width)
        pairs[:] = pairs.max(axis=1, keepdims=True)
        self.own[actors] += 1

    def fence(self, actors: slice, fences: list[list[int]]) -> None:
        """Note a fence; accesses stamped before it have a smaller count than it has."""
        self.own[actors] += 1
        for c in range(actors.start, actors.stop):
            fences[c].append(int(self.own[c]))

    def fenced(self, fences: list[list[int]], component: int, epoch: int) -> int | None:
        """The count of the thread's first fence after `epoch`, if there is one."""
        held = fences[component]
        place = bisect_right(held, epoch)
        return held[place] if place < len(held) else None
