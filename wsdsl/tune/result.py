"""Results of tuning: the measured schedules, the fastest, and a plot of their times."""

import importlib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wsdsl.report.figure import require_matplotlib, save
from wsdsl.schedule import Schedule

MOST_TICKS = 10
"""Maximum number of ticks per panel."""


@dataclass
class Trial:
    """A schedule. `ratio`: of its bursts' time to the incumbent's of the same rounds, with `error`;
    `sustained_ratio`: of sustained times, 0 if not measured. Times are microseconds per call.
    """

    schedule: Schedule
    bursts: float = 0.0
    ratio: float = 0.0
    error: float = 0.0
    spread: float = 0.0
    samples: int = 0
    sustained: float = 0.0
    sustained_ratio: float = 0.0
    failure: str = ""
    is_incumbent: bool = False
    is_old: bool = False
    """Measured by an earlier run only."""

    @property
    def both(self) -> float:
        """Geometric mean of the ratios of bursts and of sustained runs, if measured."""
        return self.ratio * math.sqrt((self.sustained_ratio or self.ratio) / (self.ratio or 1.0))

    def __str__(self) -> str:
        if self.failure:
            return f"{self.failure.splitlines()[0]:40}  {self.schedule!r}"
        sustained = f"{self.sustained:9.1f}" if self.sustained else " " * 9
        both = f"{self.ratio:6.3f}"
        both += f" · {self.sustained_ratio:.3f}" if self.sustained_ratio else " " * 8
        note = "  (incumbent)" if self.is_incumbent else "  (earlier)" if self.is_old else ""
        return f"{self.bursts:9.1f} {sustained}  {both}  {self.schedule!r}{note}"


@dataclass
class Tuned:
    """The result of `tune`; `print` shows a table. `winner`: None if no candidate is faster."""

    name: str
    sizes: dict[str, int]
    device: str
    incumbent: Trial
    trials: list[Trial] = field(default_factory=list[Trial])
    winner: Trial | None = None
    seconds: float = 0.0
    untried: int = 0
    notes: tuple[str, ...] = ()

    @property
    def schedule(self) -> Schedule:
        """The schedule of calls from now on."""
        return (self.winner or self.incumbent).schedule

    @property
    def measured(self) -> list[Trial]:
        """The fastest first; schedules of the later rounds precede others."""
        measured = [t for t in self.trials if not t.failure and t.samples]
        return sorted(measured, key=lambda t: (not t.sustained, t.both))

    @property
    def failed(self) -> list[Trial]:
        return [t for t in self.trials if t.failure]

    def plot(self, path: str | Path) -> Path:
        """Plot time versus stages and tile extents. WsdslError without matplotlib."""
        return _plot(self, Path(path))

    def __str__(self) -> str:
        sizes = ", ".join(f"{dim} = {size}" for dim, size in self.sizes.items())
        lines = [f"{self.name}, {sizes}, on {self.device}, {self.seconds:.0f} s:"]
        lines.append(f"{'µs':>9} {'sustained':>9}  {'÷ incumbent (sustained)':16}")
        lines += map(str, self.measured)
        lines += (f"  {trial}" for trial in self.failed)
        if self.untried:
            lines.append(f"{self.untried} candidates were not measured: no time was left")
        if self.winner is None:
            lines.append("the incumbent schedule stays: no candidate is faster beyond the noise")
        else:
            gain = 100 * (1 - self.winner.ratio)
            lines.append(f"new tuning-cache entry, {gain:.1f} % faster: {self.winner.schedule!r}")
        return "\n".join([*lines, *self.notes])


def axes(tuned: Tuned) -> dict[str, list[tuple[int, float]]]:
    """Return (value, microseconds) of each trial by stages and by the width of each tile, for a
    plot. Times are ratios times the incumbent's time, since clocks differ between rounds.
    """
    found: dict[str, list[tuple[int, float]]] = {}
    for trial in tuned.measured:
        time = trial.ratio * tuned.incumbent.bursts
        if trial.schedule.stages is not None:
            found.setdefault("stages", []).append((trial.schedule.stages, time))
        for name, size in (trial.schedule.tile or {}).items():
            found.setdefault(f"tile.{name}", []).append((size, time))
    return {name: points for name, points in found.items() if len({x for x, _ in points}) > 1}


def _plot(tuned: Tuned, path: Path) -> Path:
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
            style = dict(color="C2", markersize=13, label="new tuning-cache entry")
            place.plot([at], [winner.ratio * today], "*", **style)
        place.set_xticks(values[:: -(-len(values) // MOST_TICKS)])
        place.set_xlabel("pipeline stages" if name == "stages" else f"{name}, elements")
        place.grid(axis="y", alpha=0.3)
    places[0][0].set_ylabel("µs per call, in bursts")
    sizes = ", ".join(f"{dim} = {size}" for dim, size in tuned.sizes.items())
    figure.suptitle(f"{tuned.name}, {sizes} on {tuned.device}", fontsize=10)
    handles = places[0][0].get_legend_handles_labels()
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.legend(*handles, loc="lower center", ncols=2 if len(panels) == 1 else 4, fontsize=8)
    return save(figure, path, {})


def _value(trial: Trial, panel: str) -> int | None:
    """Return a trial's value on the panel's axis."""
    if panel == "stages":
        return trial.schedule.stages
    return (trial.schedule.tile or {})[panel.removeprefix("tile.")]
