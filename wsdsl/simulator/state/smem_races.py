"""Accesses to SMEM and their order: each must be ordered after earlier conflicting ones.

An access says when others may rely on its completion; the tracker keeps, for each range of bytes,
the last write and the reads since. Between the generic and the async proxy (TMA, wgmma) there must
also be a fence by the threads, which the async access has seen: it shows their writes to the async
proxy, and orders their reads before its accesses.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from wsdsl.ir.op import Op
from wsdsl.simulator.state.vector_clocks import THREADS, Clock, Clocks


@dataclass(eq=False)
class Access:
    """`who` made the access and `op` says where. `proxy` is "generic" or "async"."""

    who: str
    op: Op

    @property
    def over_in_order(self) -> bool:
        """Is it over for its own warp as soon as that goes on?"""
        return False

    def open_to(self, clocks: Clocks, actors: slice) -> str:
        """Why the actors may not rely on this access being over; "" if they may."""
        raise NotImplementedError

    def hidden_from_async(self, clocks: Clocks, actors: slice) -> str:
        """Why the async proxy, started by the actors, may come before this."""
        return ""


@dataclass(eq=False)
class ThreadAccess(Access):
    """Generic accesses by threads `by`, complete with the op; seen by synchronized threads."""

    by: slice
    epochs: Clock

    @property
    def over_in_order(self) -> bool:
        return True

    def open_to(self, clocks: Clocks, actors: slice) -> str:
        if (clocks.seen[actors, self.by] >= self.epochs).all():
            return ""
        return "no wait orders this after it"

    def hidden_from_async(self, clocks: Clocks, actors: slice) -> str:
        told = "no fence_async_proxy of its threads follows it"
        return self._unfenced(clocks, actors, clocks.proxy_fences, told)

    def unfenced_in_global(self, clocks: Clocks, actors: slice) -> str:
        """Why what the actors start of TMA may not come behind this access to global memory."""
        told = "no fence_async_proxy(everywhere=True) of its threads follows it"
        return self._unfenced(clocks, actors, clocks.global_fences, told)

    def _unfenced(self, clocks: Clocks, actors: slice, fences: list[list[int]], told: str) -> str:
        for component, epoch in zip(range(self.by.start, self.by.stop), self.epochs, strict=True):
            fence = clocks.fenced(fences, component, int(epoch))
            if fence is None:
                return told
            if int(clocks.seen[actors, component].min()) < fence:
                return "no synchronization follows its fence_async_proxy"
        return ""


@dataclass(eq=False)
class CopyIn(Access):
    """A TMA load: complete for threads that have seen the phase of the barrier that counted it."""

    component: int
    barrier: str
    phase: int | None = None

    def open_to(self, clocks: Clocks, actors: slice) -> str:
        if self.phase is None:
            return "that async copy is outstanding"
        if int(clocks.seen[actors, self.component].min()) <= self.phase:
            return f"no wait has completed phase {self.phase} of {self.barrier}, on which it counts"
        return ""


@dataclass(eq=False)
class TensorRead(Access):
    """wgmma's read of an operand: over once a wgmma_wait has retired its group."""

    by: slice
    epochs: Clock | None = None

    def open_to(self, clocks: Clocks, actors: slice) -> str:
        if self.epochs is None:
            return "no wgmma_wait has completed that wgmma"
        # All warps' parts complete together, so having seen one thread past the wait is enough.
        if (clocks.seen[actors, self.by] >= self.epochs).any(axis=1).all():
            return ""
        return "this is not ordered after the wgmma_wait that completed it"


@dataclass(eq=False)
class CopyOut(Access):
    """A TMA store's read of its source: over once the storing thread has waited for it."""

    by: int
    epoch: int | None = None
    wait: ClassVar[str] = "tma_store_wait"

    def open_to(self, clocks: Clocks, actors: slice) -> str:
        if self.epoch is None:
            return f"no {self.wait} covers that store"
        if int(clocks.seen[actors, self.by].min()) < self.epoch:
            if actors.start // THREADS == self.by // THREADS:
                return "only the storing thread has waited for it: other threads need a sync_warp"
            return f"this is not ordered after the {self.wait} of the storing threads"
        return ""


@dataclass(eq=False)
class StoredOut(CopyOut):
    """A TMA store's write: over once the storing thread has waited for more than its reads."""

    wait = "tma_store_wait(read=False)"


@dataclass(eq=False)
class Span:
    """Bytes that have been accessed alike: the last write, and the reads since, one a reader."""

    start: int
    end: int
    write: Access | None = None
    reads: dict[object, Access] = field(default_factory=dict[object, Access])


@dataclass(frozen=True)
class Conflict:
    """Why an access may not be, the earlier one that it clashes with, and on which element."""

    reason: str
    earlier: Access | None = None
    element: str = ""


class SharedAccesses:
    """All spans of a CTA's SMEM, in order."""

    def __init__(self, size: int, clocks: Clocks) -> None:
        self.clocks = clocks
        self.starts = [0]
        self.spans = [Span(0, size)]

    def _split(self, at: int) -> None:
        place = bisect_right(self.starts, at) - 1
        held = self.spans[place]
        if held.start < at < held.end:
            self.spans.insert(place + 1, Span(at, held.end, held.write, dict(held.reads)))
            self.starts.insert(place + 1, at)
            held.end = at

    def _covering(self, start: int, end: int) -> list[Span]:
        self._split(start)
        self._split(end)
        return self.spans[bisect_left(self.starts, start) : bisect_left(self.starts, end)]

    def begin(
        self,
        kind: str,
        ranges: Sequence[tuple[int, int]],
        access: Access,
        actors: slice,
        reader: object = None,
        asynchronous: bool = True,
    ) -> Conflict | None:
        """Check a read, a write or an atomic addition ("add", in any order, like reads), by the
        async proxy or threads. A later read replaces earlier ones of the same `reader`.
        """
        for start, end in ranges:
            for span in self._covering(start, end):
                last = span.write
                if kind != "write":
                    if last is None:
                        return Conflict("no op has written it")
                    before = (last,)
                else:
                    before = (*span.reads.values(), last) if last else span.reads.values()
                for earlier in before:
                    reason = earlier.open_to(self.clocks, actors)
                    if asynchronous and not reason:
                        reason = earlier.hidden_from_async(self.clocks, actors)
                    if reason:
                        return Conflict(reason, earlier)
                if kind != "write":
                    span.reads[reader] = access
            if kind == "write":
                self._forget(start, end, access)
        return None

    def _forget(self, start: int, end: int, access: Access) -> None:
        """Make the range one span: earlier accesses are complete for all later ones."""
        first, last = bisect_left(self.starts, start), bisect_left(self.starts, end)
        self.spans[first:last] = [Span(start, end, access)]
        self.starts[first:last] = [start]
