"""The measured times as a picture."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wsdsl.diagnostics import CompileError, Finding
from wsdsl.tune.result import axes

if TYPE_CHECKING:
    from wsdsl.tune.result import Tuned


def require_matplotlib() -> Any:
    try:
        return importlib.import_module("matplotlib")
    except ImportError:
        hint = "pip install matplotlib; or leave `plot` out"
        raise CompileError(Finding("a plot needs matplotlib", hint=hint)) from None


def plot(tuned: Tuned, path: Path) -> Path:
    """A panel for depth, and for each side of the tiles that more than one size was measured of; a
    line through the quickest of each.
    """
    require_matplotlib().use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    panels = axes(tuned.measured) or {"stages": []}
    figure, places = pyplot.subplots(
        1, len(panels), figsize=(4 * len(panels), 3.5), sharey=True, squeeze=False
    )
    for place, (name, points) in zip(places[0], panels.items(), strict=True):
        place.plot([x for x, _ in points], [y for _, y in points], ".", color="0.6")
        best = {x: min(y for other, y in points if other == x) for x, _ in points}
        place.plot(sorted(best), [best[x] for x in sorted(best)], "-", color="C0")
        place.axhline(tuned.incumbent.bursts, color="C3", linestyle="--", linewidth=1)
        place.set_xlabel(name)
    places[0][0].set_ylabel("µs of a call, in bursts")
    sizes = ", ".join(f"{dim} = {size}" for dim, size in tuned.sizes.items())
    figure.suptitle(f"{tuned.name}, {sizes} ({tuned.device}; dashed: chosen before)", fontsize=9)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
    return path
