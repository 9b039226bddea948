"""Print the partitions of a CTA over time: a letter per kind of step."""

from bisect import bisect_right
from collections.abc import Iterator

from wsdsl.report.figure import KINDS
from wsdsl.report.timed.units import Span
from wsdsl.report.timed.worker import Worker

COLUMNS = 96
STEPS = 14
"""Spans of the lane with most spans in a window."""
PARTS = "prologue", "steady", "epilogue"


def window(worker: Worker, part: str) -> tuple[float, float]:
    """First and last cycle of a few steps of the lane with most spans: of its PARTS."""
    ends = part == "epilogue"
    lane = max(worker.lanes, key=lambda lane: lane.total if ends else len(lane.spans))
    last = max(0, len(lane.spans) - STEPS)
    middle = bisect_right(lane.spans, worker.cycles / 2, key=lambda span: span.start)
    first = {"prologue": 0, "steady": min(middle, last), "epilogue": last}[part]
    shown = lane.spans[first : first + STEPS]
    return (shown[0].start, shown[-1].stop) if shown else (0.0, worker.cycles)


def text_lanes(worker: Worker, part: str) -> str:
    begin, end = window(worker, part)
    each = (end - begin) / COLUMNS
    width = max(len(lane.name) for lane in worker.lanes)
    lines: list[str] = []
    used: dict[str, None] = {}
    for lane in worker.lanes:
        if lane.rank:
            continue
        row = ""
        for i in range(COLUMNS):
            what = _most(lane.spans, begin + i * each, begin + (i + 1) * each)
            row += KINDS[what][0] if what else " "
            used |= {what: None} if what else {}
        lines.append(f"  {lane.name:{width}}  {row}")
    legend = ", ".join(f"{KINDS[what][0]} {what}" for what in used)
    return "\n".join([f"{part}, cycles {begin:.0f} to {end:.0f}: {legend}", *lines])


def _most(spans: tuple[Span, ...], begin: float, end: float) -> str:
    """Return the kind of step that fills most of that time."""
    found: dict[str, float] = {}
    for span, start, stop in _inside(spans, begin, end):
        found[span.kind] = found.get(span.kind, 0.0) + stop - start
    return max(found, key=lambda what: found[what], default="")


def _inside(
    spans: tuple[Span, ...], begin: float, end: float
) -> Iterator[tuple[Span, float, float]]:
    first = bisect_right(spans, begin, key=lambda span: span.stop)
    for span in spans[first:]:
        if span.start >= end:
            return
        yield span, max(begin, span.start), min(end, span.stop)
