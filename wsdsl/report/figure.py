"""Draw timelines with matplotlib, an optional dependency (extra `plot`)."""

from __future__ import annotations

import colorsys
import importlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wsdsl.diagnostics import Finding, WsdslError

if TYPE_CHECKING:
    from wsdsl.report.timed.worker import Worker
    from wsdsl.report.timeline import Bar, Timeline

SUFFIXES = (".svg", ".png", ".pdf")
GOLDEN = 0.61803398875
"""Part of the circle of hues between consecutive tiles, so that adjacent tiles differ most."""
KINDS = {
    "MMA": ("M", "#4c78a8"),
    "arithmetic": ("a", "#f2a33c"),
    "SMEM": ("m", "#72b7b2"),
    "loads": ("L", "#54a24b"),
    "stores": ("s", "#b279a2"),
    "issue": ("i", "#9d755d"),
    "DSMEM": ("x", "#ff9da6"),
    "wait": (".", "#d9d9d9"),
    "start": ("-", "#eeeeee"),
}
"""Letters and colors of spans by their kind."""
WAIT, PARTIAL_SUMS, UNIT = KINDS["wait"][1], "#444444", "#777777"
CTAS = "#54a24b", "#b6dfae"
LABEL_WIDTH = 0.0075
"""Width of a character of a bar's label, as a part of the width of the axes."""


class FigureError(WsdslError):
    """A figure that cannot be drawn."""


def require_matplotlib() -> Any:
    """Import matplotlib, or raise FigureError with the command that installs it."""
    try:
        return importlib.import_module("matplotlib")
    except ImportError:
        finding = Finding("WS1049 a figure needs matplotlib", hint="pip install 'wsdsl[plot]'")
        raise FigureError(finding) from None


def draw_timeline(
    timeline: Timeline, path: Path, heading: str, details: Sequence[str] = ()
) -> Path:
    """Draw SMs or clusters (rows) over time in µs, a color per output tile.

    FigureError for another suffix than those of SUFFIXES, or without matplotlib.
    """
    figure, axes = _subplots(path, len(timeline.rows), 0.05, heading, details)
    unit, resident = 1 / (1000 * timeline.clock), timeline.prediction.resident
    for row, bars in enumerate(timeline.rows):
        styles: dict[tuple[bool, str, int], list[Bar]] = defaultdict(list)
        for bar in bars:
            hatch = "////" if bar.partial and bar.kind == "products" else ""
            styles[bar.beside, hatch, bar.slot].append(bar)
        for (beside, hatch, slot), alike in sorted(styles.items()):
            spans = [(bar.start * unit, (bar.stop - bar.start) * unit) for bar in alike]
            fills = [color(bar, len(timeline.rows) * resident) for bar in alike]
            style = dict(facecolors=fills, hatch=hatch or None, zorder=2 + beside)
            height = 0.9 / resident
            place = row + (0.54 if beside else slot * height), 0.36 if beside else height
            axes.broken_barh(spans, place, edgecolor="white", linewidth=0, **style)
    at, number = timeline.start + timeline.wave, 1
    while at < timeline.cycles * 1.001 and timeline.wave > 0.01 * timeline.cycles:
        axes.axvline(at * unit, color="#222222", linestyle="--", linewidth=0.8, zorder=4)
        if timeline.wave > 0.05 * timeline.cycles:
            place = dict(transform=axes.get_xaxis_transform(), ha="right", fontsize=7)
            axes.text(at * unit, 1.01, f"wave {number}", **place)
        at, number = at + timeline.wave, number + 1
    axes.set(xlim=(0, timeline.microseconds), ylim=(len(timeline.rows), 0))
    axes.set_xlabel("µs since the launch (dashed: a wave of whole tiles would end)")
    axes.set_ylabel("SM" if timeline.cluster == 1 else f"cluster of {timeline.cluster} SMs")
    if timeline.prediction.plain:
        entries = {"CTA of one tile": CTAS[0], "next CTA on that SM": CTAS[1]}
    else:
        sample = next(bar for bar in timeline.bars if bar.kind == "products")
        entries = {"MMA of a tile": color(sample)}
    if timeline.cut:
        entries |= {"split-K fixup": PARTIAL_SUMS, "wait for partial accumulators": WAIT}
    return _save(figure, path, entries)


def draw_worker(worker: Worker, window: tuple[float, float], path: Path, heading: str) -> Path:
    """Draw the partitions and units of a CTA (rows) over cycles, from `window[0]` to `window[1]`.

    FigureError for another suffix than those of SUFFIXES, or without matplotlib.
    """
    begin, end = window
    lanes = [lane for lane in worker.lanes if lane.rank == 0]
    names = [*(lane.name for lane in lanes), *worker.units]
    figure, axes = _subplots(path, len(names), 0.3, heading)
    used: dict[str, str] = {}
    for row, lane in enumerate(lanes):
        for span in lane.spans:
            start, stop = max(begin, span.start), min(end, span.stop)
            if start >= stop:
                continue
            used[span.kind] = fill = KINDS[span.kind][1]
            style = dict(facecolors=fill, edgecolor="white", linewidth=0.5)
            axes.broken_barh([(start, stop - start)], (row + 0.1, 0.8), **style)
            label = span.edge if span.kind == "wait" else f"{span.kind} {span.edge}".strip()
            if len(label) * LABEL_WIDTH < (stop - start) / (end - begin):
                axes.text(start, row + 0.5, f" {label}", va="center", fontsize=7)
    for row, times in enumerate(worker.units.values(), len(lanes)):
        spans = [(max(begin, a), min(end, b) - max(begin, a)) for a, b in times]
        inside = [(start, width) for start, width in spans if width > 0]
        axes.broken_barh(inside, (row + 0.1, 0.8), facecolors=UNIT)
    axes.set(xlim=window, ylim=(len(names), 0), xlabel="cycles since the launch")
    axes.set_yticks([row + 0.5 for row in range(len(names))], names)
    return _save(figure, path, used)


def draw_sweep(
    times: Sequence[tuple[Mapping[str, str], float]],
    fields: Mapping[str, Sequence[str]],
    path: Path,
    heading: str,
) -> Path:
    """Draw time in µs over the field with most values, a line per combination of the others."""
    figure, axes = _subplots(path, 10, 0.3, heading)
    along = max(fields, key=lambda field: len(fields[field]))
    lines = defaultdict[str, list[tuple[int, float]]](list)
    for values, time in times:
        others = ", ".join(f"{f}={value}" for f, value in values.items() if f != along)
        lines[others].append((fields[along].index(values[along]), time))
    for label, points in lines.items():
        axes.plot(*zip(*points, strict=True), marker="o", label=label)
    axes.set_xticks(range(len(fields[along])), fields[along])
    axes.set(xlabel=along, ylabel="time in µs", ylim=(0, None))
    if len(lines) > 1:
        axes.legend(fontsize=7)
    return _save(figure, path, {})


def color(bar: Bar, per_wave: int = 1) -> str:
    """Choose the color of a bar: bright for the MMA of a tile, dark for its epilogue; alternating
    for the waves of a memory-bound kernel, of `per_wave` tiles each.
    """
    if bar.kind == "tile":
        return CTAS[bar.tile // per_wave % 2]
    if bar.kind in ("wait", "sums"):
        return WAIT if bar.kind == "wait" else PARTIAL_SUMS
    light, saturation = (0.66, 0.62) if bar.kind == "products" else (0.34, 0.7)
    light += 0.05 * (bar.tile % 3 - 1)
    parts = colorsys.hls_to_rgb((bar.tile * GOLDEN) % 1, light, saturation)
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)


def _subplots(
    path: Path, rows: int, row_height: float, heading: str, details: Sequence[str] = ()
) -> tuple[Any, Any]:
    if path.suffix.lower() not in SUFFIXES:
        told = f"WS1050 `{path}` has the suffix of no figure: {', '.join(SUFFIXES)}"
        raise FigureError(told, hint="write to timeline.svg")
    matplotlib = require_matplotlib()
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "wsdsl"})
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    height = min(8.0, max(2.0, row_height * rows)) + 1.2
    figure, axes = pyplot.subplots(figsize=(10, height), layout="constrained")
    figure.suptitle(heading, fontsize=10)
    axes.set_title("\n".join(details), fontsize=7, loc="left", pad=14)
    return figure, axes


def _save(figure: Any, path: Path, entries: Mapping[str, str]) -> Path:
    patch: Any = importlib.import_module("matplotlib.patches").Patch
    handles = [patch(color=fill, label=label) for label, fill in entries.items()]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=6, fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, **({"metadata": {"Date": None}} if path.suffix == ".svg" else {}))
    importlib.import_module("matplotlib.pyplot").close(figure)
    return path
