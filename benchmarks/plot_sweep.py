"""Throughput over N, a column of panels a sweep: cuBLAS, the default schedule, our best.

python -m benchmarks.plot_sweep benchmarks/results/gemm_sweep.json -o docs/sweep.svg
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import BASE, METRICS, by_suite, load
from benchmarks.suites import SWEEPS
from benchmarks.sweeps import BEST, DEFAULT, shape_of, throughput

NUM_SMS = 132
LINES = (
    (BASE, "cuBLAS", "#e08a2e", 1.4),
    (BEST, "wsdsl best", "#0b5fa5", 1.0),
    (DEFAULT, "wsdsl (default schedule)", "#4aa3ee", 1.8),
)
TILES = (((128, 256), "#888888", "--"), ((128, 128), "#bbbbbb", ":"))
"""Whose waves are marked, and how."""


def draw(result: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "wsdsl"})
    held = by_suite(result)
    swept = [held[suite] for suite in SWEEPS if suite in held]
    if not swept:
        raise SystemExit(f"no sweep in this result: {', '.join(SWEEPS)}")
    size = (5.0 * len(swept), 7.6)
    figure, panels = plt.subplots(2, len(swept), figsize=size, squeeze=False, sharex=True)
    for row, metric in zip(panels, METRICS, strict=True):
        for panel, contests in zip(row, swept, strict=True):
            curves(panel, contests, metric)
        row[0].set_ylabel("TFLOP/s")
    for panel in panels[-1]:
        panel.set_xlabel("N")
    handles: dict[str, Any] = {}
    for panel in panels[0]:
        handles |= {str(line.get_label()): line for line in panel.get_lines()}
    shown = {label: line for label, line in handles.items() if not label.startswith("_")}
    figure.legend(shown.values(), shown.keys(), loc="upper center", ncols=len(shown), frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.95))
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def curves(panel: Any, contests: Sequence[dict[str, Any]], metric: str) -> None:
    shapes = [shape_of(c) for c in contests]
    rows, depth, widest = shapes[0][0], shapes[0][2], max(n for _, n, _ in shapes)
    for tile, colour, style in TILES:
        label = f"a new wave of {tile[0]} × {tile[1]} tiles begins"
        for start in wave_starts(tile, rows, widest):
            panel.axvline(
                start, color=colour, linestyle=style, linewidth=0.9, label=label, zorder=0
            )
            label = "_"
    for name, label, colour, width in LINES:
        found = throughput(contests, name, metric)
        panel.plot(
            list(found), list(found.values()), "o-",
            color=colour, linewidth=width, markersize=2.4, label=label,
        )  # fmt: skip
    panel.set_title(f"M = {rows}, K = {depth} · {metric}", loc="left", fontweight="bold")
    panel.set_ylim(bottom=0)
    panel.grid(axis="y", color="#eeeeee")
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def wave_starts(tile: tuple[int, int], rows: int, widest: int) -> list[int]:
    """Widths after which one more column takes another wave of tiles."""
    height = -(-rows // tile[0])
    found: list[int] = []
    for waves in range(1, 1 + -(-widest * height // (tile[1] * NUM_SMS))):
        start = waves * NUM_SMS // height * tile[1]
        if start < widest:
            found.append(start)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, metavar="RESULT.json")
    parser.add_argument("-o", "--out", type=Path, required=True, help="an .svg or .png")
    options = parser.parse_args()
    draw(load(options.file), options.out)
    print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
