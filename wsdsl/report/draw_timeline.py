"""A timeline as a picture: workers down, time across, a colour for each output tile."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence

from wsdsl.report.picture import Picture
from wsdsl.report.timeline import Bar, Timeline

WIDTH = 1000
LEFT, RIGHT, TOP, BOTTOM = 58, 22, 76, 62
ROW_HEIGHTS = 4.0, 24.0
"""Of a worker: for many, and for few."""
ROWS_HEIGHT = 640
GOLDEN = 0.61803398875
"""Of the circle of hues: neighbours differ most."""
Place = tuple[float, float, float, float]
"""x, y, width, height"""
WAIT, SUMS = "#d9d9d9", "#444"


def draw(timeline: Timeline, heading: str, details: Sequence[str]) -> Picture:
    """`heading` and lines of `details` stand above."""
    rows = len(timeline.rows)
    least, most = ROW_HEIGHTS
    row = max(least, min(most, ROWS_HEIGHT / rows))
    picture = Picture(WIDTH, TOP + BOTTOM + row * rows)
    picture.text(LEFT, 20, heading, 14)
    for number, line in enumerate(details):
        picture.text(LEFT, 37 + 14 * number, line, 9.5)
    per_cycle = (WIDTH - LEFT - RIGHT) / timeline.cycles
    products: list[tuple[Place, str, str]] = []
    others: list[tuple[Place, str, str]] = []
    partial: list[Place] = []
    for number, bars in enumerate(timeline.rows):
        y, high = TOP + row * number, row * (0.88 if row > 3 else 1)
        for bar in bars:
            x, width = LEFT + bar.start * per_cycle, (bar.stop - bar.start) * per_cycle
            # What is beside products lies on top of them.
            at = (x, y + high * 0.6, width, high * 0.4) if bar.beside else (x, y, width, high)
            told = f"{numbered(timeline, number)}: {told_of(bar, timeline.clock)}"
            (products if bar.kind == "products" else others).append((at, fill(bar), told))
            if bar.partial and bar.kind == "products":
                partial.append(at)
    for at, colour, told in products:
        picture.rectangle(at, colour, title=told)
    if partial:
        picture.hatch(partial)
    for at, colour, told in others:
        picture.rectangle(at, colour, title=told)
    _waves(picture, timeline, per_cycle, row * rows)
    _axes(picture, timeline, per_cycle, row)
    _legend(picture, TOP + row * rows + 46, cut=bool(partial))
    return picture


def fill(bar: Bar) -> str:
    if bar.kind == "wait":
        return WAIT
    if bar.kind == "sums":
        return SUMS
    hue = (bar.tile * GOLDEN) % 1
    light, colourful = (0.66, 0.62) if bar.kind == "products" else (0.34, 0.7)
    light += 0.05 * (bar.tile % 3 - 1)
    parts = colorsys.hls_to_rgb(hue, light, colourful)
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)


def told_of(bar: Bar, clock: float) -> str:
    what = {
        "products": "a part of the products" if bar.partial else "products",
        "wait": "waits for sums",
        "sums": "hands on sums",
        "results": "results",
    }[bar.kind]
    return f"tile {bar.tile}, {what}, {_time(bar.start, clock)} to {_time(bar.stop, clock)}"


def _time(cycles: float, clock: float) -> str:
    return f"{cycles / clock / 1000:.1f} µs"


def numbered(timeline: Timeline, number: int) -> str:
    size = timeline.cluster
    return f"SM {number}" if size == 1 else f"cluster {number} (of {size} SMs)"


def summary_line(t: Timeline) -> str:
    doers = f"{len(t.rows)} SMs" if t.cluster == 1 else f"{len(t.rows)} clusters of {t.cluster}"
    cut = f", {t.cut} of them cut: {t.pieces} pieces" if t.cut else ""
    told = f"{doers}, {t.tiles} tiles{cut}, {100 * t.idle:.0f} % idle"
    return f"{told}, predicted {_time(t.cycles, t.clock)} at {t.clock:.2g} GHz"


def _waves(picture: Picture, timeline: Timeline, per_cycle: float, height: float) -> None:
    """Where whole tiles would end."""
    at, number = timeline.start + timeline.wave, 1
    while at < timeline.cycles * 1.001 and timeline.wave * per_cycle > 8:
        x = LEFT + at * per_cycle
        picture.line((x, TOP - 6, x, TOP + height), "#222", "5 3")
        if timeline.wave * per_cycle > 40:
            picture.text(x - 3, TOP - 8, f"wave {number}", 9, anchor="end")
        at, number = at + timeline.wave, number + 1


def _axes(picture: Picture, timeline: Timeline, per_cycle: float, row: float) -> None:
    rows = len(timeline.rows)
    bottom = TOP + row * rows
    picture.line((LEFT, bottom, WIDTH - RIGHT, bottom), "#222")
    whole = timeline.microseconds
    step = _round_step(whole / 8)
    for i in range(math.floor(whole / step) + 1):
        x = LEFT + i * step * timeline.clock * 1000 * per_cycle
        picture.line((x, bottom, x, bottom + 4), "#222")
        picture.text(x, bottom + 16, f"{i * step:g}", 10, anchor="middle")
    picture.text(WIDTH - RIGHT, bottom + 30, "µs since the launch", 10, anchor="end")
    every = max(1, int(_round_step(rows / 12)))
    for number in range(0, rows, every):
        y = TOP + row * (number + 0.5) + 3
        doer = "SM" if timeline.cluster == 1 else "cl"
        picture.text(LEFT - 6, y, f"{doer} {number}", 9, anchor="end")


def _round_step(wanted: float) -> float:
    """1, 2 or 5 times a power of ten, about as much as is wanted."""
    power = 10.0 ** math.floor(math.log10(max(wanted, 1e-9)))
    return next(power * n for n in (1, 2, 5, 10) if power * n >= wanted * 0.999)


def _legend(picture: Picture, y: float, *, cut: bool) -> None:
    example = Bar("products", 0, cut, 0, 1)
    entries = [
        (fill(example), "products of a tile (hatched: a part of them)" if cut else "products"),
        (fill(Bar("results", 0, False, 0, 1)), "results"),
    ]
    if cut:
        entries += [(SUMS, "sums handed on"), (WAIT, "waits for them")]
    x = float(LEFT)
    for number, (colour, text) in enumerate(entries):
        place = (x, y - 9, 18, 11)
        picture.rectangle(place, colour)
        if cut and number == 0:
            picture.hatch([(x + 9, y - 9, 9, 11)])
        picture.text(x + 23, y, text, 10)
        x += 40 + 5.2 * len(text)
    picture.line((x + 6, y - 10, x + 6, y + 3), "#222", "5 3")
    picture.text(x + 12, y, "a wave of whole tiles would end", 10)
