"""A timeline as Perfetto (ui.perfetto.dev) and chrome://tracing read it."""

from __future__ import annotations

from typing import Any

from wsdsl.report.timed.worker import Worker


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
