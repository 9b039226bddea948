"""The measured times as a picture."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wsdsl.report.figure import require_matplotlib
from wsdsl.tune.result import axes

if TYPE_CHECKING:
    from wsdsl.tune.result import Trial, Tuned

MOST_TICKS = 10
"""Below a panel."""


def plot(tuned: Tuned, path: Path) -> Path:
    """Draw a panel for stages, and one per tile extent with more than one measured size; a line
    connects the fastest of each.
    """
    require_matplotlib().use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    panels = axes(tuned) or {"stages": []}
    figure, places = pyplot.subplots(
        1, len(panels), figsize=(1 + 4 * len(panels), 4.2), sharey=True, squeeze=False
    )
    winner, today = tuned.winner, tuned.incumbent.bursts
    for place, (name, points) in zip(places[0], panels.items(), strict=True):
        values = sorted({x for x, _ in points})
        best = [min(y for other, y in points if other == x) for x in values]
        every = [x for x, _ in points], [y for _, y in points]
        place.plot(*every, ".", color="0.6", label="a schedule")
        place.plot(values, best, "-", color="C0", label="the fastest of each")
        place.axhline(today, color="C3", linestyle="--", linewidth=1, label="incumbent")
        if winner is not None:
            at = _value(winner, name)
            kept = dict(color="C2", markersize=13, label="new tuning-cache entry")
            place.plot([at], [winner.ratio * today], "*", **kept)
        # Those that were measured, as far as there is room for them.
        place.set_xticks(values[:: -(-len(values) // MOST_TICKS)])
        place.set_xlabel("pipeline stages" if name == "stages" else f"{name}, elements")
        place.grid(axis="y", alpha=0.3)
    places[0][0].set_ylabel("µs per call, in bursts")
    sizes = ", ".join(f"{dim} = {size}" for dim, size in tuned.sizes.items())
    figure.suptitle(f"{tuned.name}, {sizes} on {tuned.device}", fontsize=10)
    told = places[0][0].get_legend_handles_labels()
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.legend(*told, loc="lower center", ncols=2 if len(panels) == 1 else 4, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def _value(trial: Trial, panel: str) -> int | None:
    """Of a trial, along the panel's axis."""
    if panel == "stages":
        return trial.schedule.stages
    return (trial.schedule.tile or {})[panel.removeprefix("tile.")]
