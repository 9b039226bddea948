"""Busy and wait times of one CTA's partitions, in predicted cycles."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from wsdsl.report.bottleneck import LATENCY
from wsdsl.report.timed.pipeline_edges import EMPTY, FULL
from wsdsl.report.timed.units import Span

WORTH_LISTING, WORTH_A_REASON = 0.005, 0.03
"""Fractions of the cycles."""
LOADING, NEARLY = ("L2", "DRAM"), 0.9
"""Units that loads wait for; the fraction of the bottleneck's from which on one limits them."""
Times = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Lane:
    """Of one warpgroup of the CTA of that rank in its cluster, or of a thread in its place."""

    name: str
    rank: int
    spans: tuple[Span, ...]
    slot: int = 0
    """Which of the CTAs that are resident on an SM."""

    @cached_property
    def waiting(self) -> dict[str, float]:
        """Cycles by edge, the longest first."""
        return _summed((s.edge, s.stop - s.start) for s in self.spans if s.kind == "wait")

    @cached_property
    def busy(self) -> dict[str, float]:
        """Cycles by what it does, the longest first."""
        return _summed((s.kind, s.stop - s.start) for s in self.spans if s.kind != "wait")

    @property
    def total(self) -> float:
        """Its end, in cycles since the launch."""
        return max((span.stop for span in self.spans), default=0.0)


@dataclass(frozen=True)
class Worker:
    """The CTAs that an SM, or a cluster of SMs, runs last. `units`: when those of the first SM are
    busy; `predicted`: cycles that `explain` predicts for the kernel, and fractions by unit.
    """

    ctas: tuple[int, ...]
    lanes: tuple[Lane, ...]
    units: Mapping[str, Times]
    cycles: float
    predicted: float
    clock: float
    fractions: Mapping[str, float]
    has_smem_for_a_stage: bool

    @property
    def bottleneck(self) -> str:
        """The unit that limits the predicted time of the kernel."""
        return next(iter(self.fractions))

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
            f"({apart:+.1f} % versus the predicted time of the kernel)"
        )
        yield f"  bottleneck of the kernel: {self.bottleneck}"
        if resident := max(lane.slot for lane in self.lanes):
            yield f"  CTAs per SM: {resident + 1}"
        yield f"  units busy, of these cycles: {self._shares(self.busy)}"
        own = [lane for lane in self.lanes if lane.rank == lane.slot == 0]
        width = max(len(lane.name) for lane in own)
        for lane in own:
            told = [self._shares(lane.busy) or f"busy for less than {100 * WORTH_LISTING} %"]
            for edge, cycles in lane.waiting.items():
                if cycles > WORTH_LISTING * self.cycles:
                    share = 100 * cycles / self.cycles
                    why = self._why(edge) if share > 100 * WORTH_A_REASON else ""
                    told.append(f"waits {share:.0f} % for {edge}{why}")
            name = lane.name
            for line in told:
                yield f"  {name:{width}}  {line}"
                name = ""

    def _shares(self, cycles: Mapping[str, float]) -> str:
        least = WORTH_LISTING * self.cycles
        told = [(name, 100 * n / self.cycles) for name, n in cycles.items() if n > least]
        return ", ".join(f"{name} {share:.0f} %" for name, share in told)

    def _why(self, edge: str) -> str:
        """Explain a wait by the bottleneck."""
        if edge.endswith(f"({EMPTY})"):
            return ": all stages are full"
        if not edge.endswith(f"({FULL})"):
            return ""
        loading = max(LOADING, key=lambda unit: self.fractions[unit])
        if self.fractions[loading] > NEARLY * self.fractions[self.bottleneck]:
            return f": {loading} limits the loads"
        helps = self.has_smem_for_a_stage and self.bottleneck == LATENCY
        return ": load latency" + ("; hint: use more stages" if helps else "")


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
            told = f"{span.kind}: {span.edge}" if span.edge else span.kind
            add(at, told, span.kind, span.start, span.stop)
    for number, (unit, times) in enumerate(worker.units.items(), len(worker.lanes)):
        at = {"pid": first, "tid": number}
        events.append(_name("thread_name", f"unit: {unit}", **at))
        for start, stop in times:
            add(at, unit, "unit", start, stop)
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _name(kind: str, name: str, pid: int, tid: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}
