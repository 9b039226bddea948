"""What the partitions of one CTA do and wait for, in predicted cycles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from wsdsl.report.timed.edges import EMPTY, FULL
from wsdsl.report.timed.units import Span

LEAST = 0.005
"""Of the time, that is worth telling."""
WORTH_A_REASON = 0.03
BUSY = 0.85
"""A unit that has work for so much of the time since the start is the limit."""
LOADING = "loads from L2", "loads by threads", "memory"
Times = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Lane:
    """Of one warpgroup of the CTA of that rank in its cluster, or of a thread in its place."""

    name: str
    rank: int
    spans: tuple[Span, ...]

    @cached_property
    def waiting(self) -> dict[str, float]:
        """Cycles by edge, the longest first."""
        return _summed((s.edge, s.stop - s.start) for s in self.spans if s.what == "wait")

    @cached_property
    def busy(self) -> dict[str, float]:
        """Cycles by what it does, the longest first."""
        return _summed((s.what, s.stop - s.start) for s in self.spans if s.what != "wait")

    @property
    def total(self) -> float:
        """When it is over, in cycles since the launch."""
        return max((span.stop for span in self.spans), default=0.0)


@dataclass(frozen=True)
class Worker:
    """The CTA, or those of the cluster, that are done last. `units` are those of the first CTA, and
    when they are busy; `predicted` are the cycles that `explain` tells of all.
    """

    ctas: tuple[int, ...]
    lanes: tuple[Lane, ...]
    units: Mapping[str, Times]
    cycles: float
    predicted: float
    clock: float

    @cached_property
    def busy(self) -> dict[str, float]:
        """Cycles that each unit is busy, the longest first."""
        return _summed((n, b - a) for n, times in self.units.items() for a, b in times)

    def __str__(self) -> str:
        return "\n".join(self._told())

    def _told(self) -> Iterator[str]:
        apart = 100 * (self.cycles / self.predicted - 1)
        time = self.cycles / self.clock / 1000
        yield (
            f"CTA {self.ctas[0]}, step by step: {self.cycles:.0f} cycles, {time:.1f} µs "
            f"({apart:+.1f} % against the prediction of all)"
        )
        yield f"  units busy: {self._shares(self.busy)}"
        own = [lane for lane in self.lanes if lane.rank == 0]
        width = max(len(lane.name) for lane in own)
        for lane in own:
            told = [self._shares(lane.busy) or "next to nothing"]
            for edge, cycles in lane.waiting.items():
                if cycles > LEAST * self.cycles:
                    share = 100 * cycles / self.cycles
                    why = self._why(edge) if share > 100 * WORTH_A_REASON else ""
                    told.append(f"waits {share:.0f} % for {edge}{why}")
            name = lane.name
            for line in told:
                yield f"  {name:{width}}  {line}"
                name = ""

    def _shares(self, cycles: Mapping[str, float]) -> str:
        least = LEAST * self.cycles
        told = [(name, 100 * n / self.cycles) for name, n in cycles.items() if n > least]
        return ", ".join(f"{name} {share:.0f} %" for name, share in told)

    def _why(self, edge: str) -> str:
        """What makes one wait there."""
        since = self.cycles - self.lanes[0].spans[0].stop
        limits = [name for name, cycles in self.busy.items() if cycles > BUSY * since]
        if edge.endswith(f"({EMPTY})"):
            return ": it is ahead of who reads it"
        if not edge.endswith(f"({FULL})"):
            return ""
        if any(name in LOADING for name in limits):
            return ": loads are the limit"
        if limits:
            return f": others keep {limits[0]} busy meanwhile"
        return ": it is filled too late, though nothing is busy all the time; try more stages"


def _summed(cycles: Iterable[tuple[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, num in cycles:
        found[name] = found.get(name, 0.0) + num
    return dict(sorted(found.items(), key=lambda item: -item[1]))


# Perfetto traces.
def trace(worker: Worker) -> dict[str, Any]:
    """A process for each CTA, a thread for each partition, and for each unit of the first CTA;
    microseconds since the launch.
    """
    first, microsecond = worker.ctas[0], worker.clock * 1000
    events = [_name("process_name", f"CTA {cta}", cta) for cta in worker.ctas]

    def add(at: dict[str, int], name: str, what: str, start: float, stop: float) -> None:
        times = {"ts": start / microsecond, "dur": (stop - start) / microsecond}
        cycles = {"from cycle": round(start), "cycles": round(stop - start)}
        events.append({"ph": "X", "name": name, "cat": what, **times, **at, "args": cycles})

    for number, lane in enumerate(worker.lanes):
        at = {"pid": worker.ctas[lane.rank], "tid": number}
        events.append(_name("thread_name", lane.name, **at))
        for span in lane.spans:
            told = f"{span.what}: {span.edge}" if span.edge else span.what
            add(at, told, span.what, span.start, span.stop)
    for number, (unit, times) in enumerate(worker.units.items(), len(worker.lanes)):
        at = {"pid": first, "tid": number}
        events.append(_name("thread_name", f"unit: {unit}", **at))
        for start, stop in times:
            add(at, unit, "unit", start, stop)
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _name(kind: str, name: str, pid: int, tid: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}
