"""Draw figures with matplotlib, an optional dependency (extra `plot`)."""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wsdsl.diagnostics import Finding, WsdslError

if TYPE_CHECKING:
    from wsdsl.report.timed.worker import Worker

SUFFIXES = (".svg", ".png", ".pdf")
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
UNIT = "#777777"
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


def draw_worker(worker: Worker, window: tuple[float, float], path: Path, heading: str) -> Path:
    """Draw the partitions and units of a CTA (rows) over cycles, from `window[0]` to `window[1]`.

    FigureError for another suffix than those of SUFFIXES, or without matplotlib.
    """
    begin, end = window
    lanes = [lane for lane in worker.lanes if lane.rank == 0]
    names = [*(lane.name for lane in lanes), *worker.units]
    figure, axes = subplots(path, len(names), 0.3, heading)
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
    return save(figure, path, used)


def draw_sweep(
    times: Sequence[tuple[Mapping[str, str], float]],
    fields: Mapping[str, Sequence[str]],
    path: Path,
    heading: str,
) -> Path:
    """Draw time in µs over the field with most values, a line per combination of the others."""
    figure, axes = subplots(path, 10, 0.3, heading)
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
    return save(figure, path, {})


def subplots(
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


def save(figure: Any, path: Path, entries: Mapping[str, str]) -> Path:
    patch: Any = importlib.import_module("matplotlib.patches").Patch
    handles = [patch(color=fill, label=label) for label, fill in entries.items()]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=6, fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, **({"metadata": {"Date": None}} if path.suffix == ".svg" else {}))
    importlib.import_module("matplotlib.pyplot").close(figure)
    return path
