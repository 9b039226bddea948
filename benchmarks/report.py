"""Tables of every shape of a result file; docs/performance.md has their means.

python -m benchmarks.report benchmarks/results/gemm.json

Each cell is the ratio to cuBLAS, interleaved · sustained. ✗ marks a figure under its target. Of the
sweeps only what they amount to is shown; benchmarks.plot_sweep draws every point.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import markdown, sweeps
from benchmarks.markdown import figure
from benchmarks.results import (
    BASE,
    METRICS,
    by_suite,
    contestants,
    geomean,
    load,
    ratio,
    ratio_between,
)
from benchmarks.suites import SWEEPS


@dataclass(frozen=True)
class Target:
    """What a contestant's ratio to another shall be: as a geometric mean, and everywhere."""

    name: str
    against: str
    mean: float
    least: float = 0.0


TARGETS = (
    Target("wsdsl", BASE, 1.03, 0.97),
    Target("wsdsl best", BASE, 1.06, 1.00),
    Target("wsdsl best", "quack", 1.01),
)


def least(name: str, kind: str) -> float:
    """The targets are those of bf16."""
    found = [t.least for t in TARGETS if (t.name, t.against) == (name, BASE)]
    return max(found, default=0.0) if kind == "bf16" else 0.0


def report(result: dict[str, Any]) -> str:
    suites = by_suite(result)
    parts = [runs(result)]
    for suite, contests in suites.items():
        if suite in SWEEPS:
            continue
        parts.append(f"### {suite}\n\n{table(contests)}")
    swept = {suite: contests for suite, contests in suites.items() if suite in SWEEPS}
    if swept:
        parts.append(f"### sweeps\n\n{sweeps.summary(swept)}")
    bf16 = [c for c in result["contests"] if c["kind"] == "bf16" and c["suite"] not in SWEEPS]
    if bf16:
        parts.append(f"### bf16, all {len(bf16)} shapes\n\n{summary(bf16)}")
    missing = absent(result["contests"])
    if missing:
        parts.append(f"### Not measured\n\n{missing}")
    return "\n\n".join(parts) + "\n"


def runs(result: dict[str, Any]) -> str:
    lines: list[str] = []
    for run in result["runs"]:
        gpu, versions = run.get("gpu", {}), run.get("versions", {})
        shown = ", ".join(f"{name} {version}" for name, version in versions.items())
        driver = gpu.get("driver_version", "?")
        lines.append(f"- {run['date']}, {gpu.get('name', 'no GPU')}, driver {driver}: {shown}")
        lines.append(f"  `{run['command']}`")
    return "\n".join(lines)


def table(contests: Sequence[dict[str, Any]]) -> str:
    names = [n for n in contestants(contests) if n != BASE]
    if not names:
        return "No contestant beside cuBLAS was measured."
    rows = [[cell(c["rows"].get(n, {}), least(n, c["kind"])) for n in names] for c in contests]
    shapes = [f"{c['shape'].replace('x', ' × ')}{tflops(c)}" for c in contests]
    shapes.append("**geometric mean**")
    rows.append([mean_cell(contests, n, BASE, 0.0) for n in names])
    return markdown.table(["M × N × K (cuBLAS, TFLOP/s)", *names], shapes, rows)


def summary(contests: Sequence[dict[str, Any]]) -> str:
    """Every contestant over all shapes, and what the project aims at."""
    names = [n for n in contestants(contests) if n != BASE]
    wanted = [Target(n, BASE, 0.0) for n in names if n not in {t.name for t in TARGETS}]
    wanted += [t for t in TARGETS if t.name in names and t.against in (BASE, *names)]
    rows = [
        [
            mean_cell(contests, t.name, t.against, t.mean),
            least_cell(contests, t),
            " · ".join(str(len(ratios(contests, t.name, t.against, m))) for m in METRICS),
            aim(t),
        ]
        for t in wanted
    ]
    against = [f"{t.name} ÷ {'cuBLAS' if t.against == BASE else t.against}" for t in wanted]
    return markdown.table(["", "geometric mean", "least", "shapes", "target"], against, rows)


def aim(t: Target) -> str:
    if not t.mean:
        return ""
    return f"mean ≥ {t.mean:.2f}" + (f", least ≥ {t.least:.2f}" if t.least else "")


def ratios(contests: Sequence[dict[str, Any]], name: str, against: str, metric: str) -> list[float]:
    found = [ratio_between(c["rows"], name, against, metric) for c in contests]
    if against == BASE:
        found = [ratio(c["rows"].get(name, {}), metric) for c in contests]
    return [value for value in found if value is not None]


def cell(row: dict[str, Any], at_least: float) -> str:
    found = [ratio(row, metric) for metric in METRICS]
    return " · ".join(figure(value, at_least) for value in found) if found[0] else "–"


def mean_cell(contests: Sequence[dict[str, Any]], name: str, against: str, target: float) -> str:
    found = [ratios(contests, name, against, metric) for metric in METRICS]
    return " · ".join(figure(geomean(values), target) for values in found) if found[0] else "–"


def least_cell(contests: Sequence[dict[str, Any]], t: Target) -> str:
    found = [ratios(contests, t.name, t.against, metric) for metric in METRICS]
    return " · ".join(figure(min(values), t.least) for values in found) if found[0] else "–"


def tflops(contest: dict[str, Any]) -> str:
    row = contest["rows"].get(BASE, {})
    if not row.get("correct") or METRICS[0] not in row:
        return ""
    shown = " · ".join(format(row[metric]["tflops"], ".0f") for metric in METRICS)
    return f" ({shown})"


def absent(contests: Sequence[dict[str, Any]]) -> str:
    """Who did not take part where, and why; reasons that recur are said once."""
    found: dict[tuple[str, str], list[str]] = {}
    for contest in contests:
        for name, row in contest["rows"].items():
            if ratio(row, METRICS[0]) is None:
                why = row.get("failure", "wrong")
                found.setdefault((name, why), []).append(f"{contest['suite']} {contest['shape']}")
    return "\n".join(
        f"- {name}: {why} ({', '.join(where[:3])}{' …' if len(where) > 3 else ''})"
        for (name, why), where in found.items()
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, metavar="RESULT.json")
    print(report(load(parser.parse_args().file)), end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
