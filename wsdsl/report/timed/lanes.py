"""Lanes over time, of the steady state: a line of letters for each partition, or a picture."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from wsdsl.report.picture import Picture
from wsdsl.report.timed.units import Span
from wsdsl.report.timed.worker import Worker

COLUMNS = 96
STEPS = 14
"""Spans of the busiest lane, that are shown."""
LETTERS = {
    "products": "P",
    "arithmetic": "a",
    "SMEM": "m",
    "loads": "L",
    "stores": "s",
    "issue": "i",
    "exchange": "x",
    "wait": ".",
    "start": "-",
}
COLOURS = {
    "products": "#4c78a8",
    "arithmetic": "#f2a33c",
    "SMEM": "#72b7b2",
    "loads": "#54a24b",
    "stores": "#b279a2",
    "issue": "#9d755d",
    "exchange": "#ff9da6",
    "wait": "#d9d9d9",
    "start": "#eeeeee",
}
WIDTH, LEFT, TOP, ROW = 1000, 130, 60, 26


def window(worker: Worker) -> tuple[float, float]:
    """From when to when a few steps of the middle are."""
    lane = max(worker.lanes, key=lambda lane: len(lane.spans))
    middle = bisect_right(lane.spans, worker.cycles / 2, key=lambda span: span.start)
    begin = max(0, min(middle, len(lane.spans) - STEPS))
    shown = lane.spans[begin : begin + STEPS]
    return (shown[0].start, shown[-1].stop) if shown else (0.0, worker.cycles)


def text_lanes(worker: Worker) -> str:
    begin, end = window(worker)
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
            row += LETTERS[what] if what else " "
            used |= {what: None} if what else {}
        lines.append(f"  {lane.name:{width}}  {row}")
    legend = ", ".join(f"{LETTERS[what]} {what}" for what in used)
    return "\n".join([f"cycles {begin:.0f} to {end:.0f}: {legend}", *lines])


def _most(spans: tuple[Span, ...], begin: float, end: float) -> str:
    """What fills most of that time."""
    found: dict[str, float] = {}
    for span, start, stop in _inside(spans, begin, end):
        found[span.what] = found.get(span.what, 0.0) + stop - start
    return max(found, key=lambda what: found[what], default="")


def _inside(
    spans: tuple[Span, ...], begin: float, end: float
) -> Iterator[tuple[Span, float, float]]:
    first = bisect_right(spans, begin, key=lambda span: span.stop)
    for span in spans[first:]:
        if span.start >= end:
            return
        yield span, max(begin, span.start), min(end, span.stop)


def draw_lanes(worker: Worker, heading: str) -> Picture:
    begin, end = window(worker)
    units = [(name, times) for name, times in worker.units.items()]
    own = [lane for lane in worker.lanes if lane.rank == 0]
    rows = len(own) + len(units)
    picture = Picture(WIDTH, TOP + ROW * rows + 70)
    picture.text(LEFT, 20, heading, 14)
    told = f"cycles {begin:.0f} to {end:.0f} of {worker.cycles:.0f}, CTA {worker.ctas[0]}"
    picture.text(LEFT, 38, told, 10)
    per_cycle = (WIDTH - LEFT - 20) / max(1.0, end - begin)

    def bar(row: int, start: float, stop: float, colour: str, title: str) -> None:
        at = LEFT + (start - begin) * per_cycle, TOP + row * ROW + 3
        width = (stop - start) * per_cycle
        picture.rectangle((*at, width, ROW - 6), colour, title=title)
        if len(title) * 5 < width:
            picture.text(at[0] + 3, at[1] + 13, title, 9)

    for row, lane in enumerate(own):
        picture.text(LEFT - 6, TOP + row * ROW + 17, lane.name, 10, anchor="end")
        for span, start, stop in _inside(lane.spans, begin, end):
            what = span.edge if span.what == "wait" else f"{span.what} {span.edge}".strip()
            bar(row, start, stop, COLOURS[span.what], what)
    for row, (name, times) in enumerate(units, len(own)):
        picture.text(LEFT - 6, TOP + row * ROW + 17, name, 10, anchor="end")
        for start, stop in times:
            if start < end and stop > begin:
                bar(row, max(begin, start), min(end, stop), "#777", "")
    bottom = TOP + rows * ROW
    picture.line((LEFT, bottom, WIDTH - 20, bottom), "#222")
    for i in range(5):
        x = LEFT + i * (WIDTH - LEFT - 20) / 4
        cycles = begin + i * (end - begin) / 4
        picture.text(x, bottom + 15, f"{cycles:.0f}", 10, anchor="middle")
    x = float(LEFT)
    used = {span.what for lane in own for span, *_ in _inside(lane.spans, begin, end)}
    for what, colour in COLOURS.items():
        if what in used:
            picture.rectangle((x, bottom + 34, 18, 11), colour)
            picture.text(x + 23, bottom + 43, what, 10)
            x += 45 + 6 * len(what)
    picture.text(WIDTH - 20, bottom + 30, "cycles since the launch", 10, anchor="end")
    return picture
