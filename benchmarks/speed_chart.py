"""Draw the speed of each kernel family versus the usual library, from one run on an H200.

python -m benchmarks.speed_chart -o docs/speed.svg
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from statistics import geometric_mean

FIGURES = Path(__file__).parent / "results" / "key_figures_h200.md"
ROW = re.compile(r"^\| (\w+) [^|]* / ([^|]*), sustained \| ([\d.]+)", re.MULTILINE)
NAMES = {
    "matmul": "matmul, bf16",
    "attention": "attention, forward",
    "softmax": "softmax",
    "i4": "matmul, 4-bit weights",
    "grouped": "grouped matmul, bf16",
}


def families(text: str) -> dict[str, list[float]]:
    """Return the sustained ratios of the newest run, one per shape, by family and library."""
    ratios: dict[str, list[float]] = {}
    for family, library, ratio in ROW.findall(text):
        ratios.setdefault(f"{NAMES[family]} / {library}", []).append(float(ratio))
    return ratios


def label(ratios: list[float]) -> str:
    shapes = "1 shape" if len(ratios) == 1 else f"{len(ratios)} shapes"
    return f"{geometric_mean(ratios):.2f} ({shapes})"


def draw(ratios: dict[str, list[float]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"font.size": 10, "svg.fonttype": "none", "svg.hashsalt": "wsdsl"})
    figure, panel = plt.subplots(figsize=(9, 0.8 + 0.5 * len(ratios)))
    for y, values in enumerate(ratios.values()):
        mean = geometric_mean(values)
        panel.barh(y, mean - 1, left=1, height=0.5, color="#6db3f2" if mean >= 1 else "#f2a65a")
        panel.plot(values, [y] * len(values), "o", color="black", markersize=3)
        panel.text(max(*values, 1) * 1.05, y, label(values), va="center")
    panel.axvline(1, color="black", linewidth=0.8)
    panel.set_xscale("log", base=2)
    panel.set_xlim(1 / 16, 5)
    ticks = [0.0625, 0.125, 0.25, 0.5, 1, 2, 4]
    panel.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
    panel.set_yticks(range(len(ratios)), list(ratios))
    panel.invert_yaxis()
    figure.suptitle("time of the library / time of wsdsl on one H200 (mean; dots: shapes)")
    panel.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True, help="an .svg or .png")
    draw(families(FIGURES.read_text()), parser.parse_args().out)
