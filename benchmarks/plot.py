"""Bars of the ratios to cuBLAS, a row of panels a suite, interleaved beside sustained.

python -m benchmarks.plot benchmarks/results/gemm.json -o docs/gemm.svg
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import BASE, METRICS, by_suite, contestants, load, ratio

COLOURS = {
    "wsdsl best": "#0b5fa5",
    "wsdsl": "#6db3f2",
    "quack": "#f2a65a",
    "triton": "#9aa0a6",
    "pallas": "#b39ddb",
    "torch fast": "#7cb342",
}
OTHERS = "#cfcfcf"
LOW, HIGH = 0.5, 1.3
"""Bars that leave this range are cut; the value is written on each."""


def draw(result: dict[str, Any], path: Path, suites: Sequence[str] = ()) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "wsdsl"})
    groups = {k: v for k, v in by_suite(result).items() if not suites or k in suites}
    names = [n for n in contestants([c for g in groups.values() for c in g]) if n != BASE]
    size = (15, 1.2 + 2.1 * len(groups))
    figure, panels = plt.subplots(len(groups), 2, figsize=size, squeeze=False, sharey=True)
    for row, (suite, contests) in zip(panels, groups.items(), strict=True):
        for panel, metric in zip(row, METRICS, strict=True):
            bars(panel, contests, names, metric)
            panel.set_title(f"{suite} · {metric}", loc="left", fontweight="bold")
        row[0].set_ylabel("ratio to cuBLAS")
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS.get(n, OTHERS)) for n in names]
    figure.legend(handles, names, loc="upper center", ncols=len(names), frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.35 / size[1]))
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def bars(panel: Any, contests: Sequence[dict[str, Any]], names: Sequence[str], metric: str) -> None:
    width = 0.85 / max(1, len(names))
    for i, name in enumerate(names):
        colour = COLOURS.get(name, OTHERS)
        for x, contest in enumerate(contests):
            value = ratio(contest["rows"].get(name, {}), metric)
            at = x + (i - (len(names) - 1) / 2) * width
            if value is not None:
                shown = min(max(value, LOW), HIGH)
                panel.bar(at, shown - LOW, width * 0.92, bottom=LOW, color=colour)
            panel.text(
                at,
                LOW + 0.03,
                "–" if value is None else f"{value:.2f}",
                ha="center",
                va="bottom",
                fontsize=7,
                color="white" if name == "wsdsl best" and value else "black",
                rotation=90 if len(names) * len(contests) > 12 else 0,
            )
    panel.axhline(1.0, color="black", linewidth=0.8)
    panel.set_ylim(LOW, HIGH)
    panel.set_xlim(-0.6, max(1, len(contests)) - 0.4)
    labels = [c["shape"].replace("x", "×") for c in contests]
    panel.set_xticks(range(len(contests)), [broken(text, len(labels)) for text in labels])
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def broken(label: str, count: int) -> str:
    """On two lines where there are many."""
    if count < 6:
        return label
    cut = math.ceil(label.count("×") / 2)
    parts = label.split("×")
    return "×".join(parts[: cut + 1]) + "×\n" + "×".join(parts[cut + 1 :])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, metavar="RESULT.json")
    parser.add_argument("-o", "--out", type=Path, required=True, help="an .svg or .png")
    parser.add_argument("--suite", action="append", default=[], help="only these")
    options = parser.parse_args()
    draw(load(options.file), options.out, options.suite)
    print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
