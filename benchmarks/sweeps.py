"""What a sweep over N amounts to: means, the lowest points, the choice, and the saw-tooth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from benchmarks import markdown
from benchmarks.results import BASE, METRICS, geomean, ratio, ratio_between
from benchmarks.suites import shape_from

Contests = Sequence[dict[str, Any]]
Points = dict[int, float]
"""By N."""
DEFAULT, BEST = "wsdsl", "wsdsl best"
FULL = 1536
"""N from which on whole tiles of any shape use most of the card; throughput rises before."""


@dataclass(frozen=True)
class Line:
    """One line of the table; `at` has the figure and where it is, by metric."""

    name: str
    at: Callable[[Contests, str], tuple[float, str] | None]
    least: float = 0.0
    only: str = ""
    """The one sweep that has this target."""


def summary(swept: Mapping[str, Contests]) -> str:
    """A column a sweep, interleaved · sustained."""
    suites = sorted(swept, key=lambda suite: shape_of(swept[suite][0])[2])
    head = ["", *(f"K = {shape_of(swept[suite][0])[2]}" for suite in suites), "target"]
    rows = [[*(cell(line, suite, swept[suite]) for suite in suites), aim(line)] for line in LINES]
    return markdown.table(head, [line.name for line in LINES], rows)


def shape_of(contest: dict[str, Any]) -> tuple[int, int, int]:
    return shape_from(contest["shape"])


def points(contests: Contests, value: Callable[[dict[str, Any]], float | None]) -> Points:
    """What there is of each contest's rows, in the order of N."""
    found = {shape_of(c)[1]: value(c["rows"]) for c in contests}
    return {n: v for n, v in sorted(found.items()) if v is not None}


def throughput(contests: Contests, name: str, metric: str) -> Points:
    def value(rows: dict[str, Any]) -> float | None:
        row = rows.get(name, {})
        return row[metric]["tflops"] if ratio(row, metric) is not None else None

    return points(contests, value)


def quotients(contests: Contests, name: str, other: str, metric: str) -> Points:
    def value(rows: dict[str, Any]) -> float | None:
        if other == BASE:
            return ratio(rows.get(name, {}), metric)
        return ratio_between(rows, name, other, metric)

    return points(contests, value)


def mean_of(name: str, other: str) -> Callable[[Contests, str], tuple[float, str] | None]:
    def at(contests: Contests, metric: str) -> tuple[float, str] | None:
        found = quotients(contests, name, other, metric)
        return (geomean(found.values()), "") if found else None

    return at


def least_of(name: str, other: str) -> Callable[[Contests, str], tuple[float, str] | None]:
    def at(contests: Contests, metric: str) -> tuple[float, str] | None:
        found = quotients(contests, name, other, metric)
        return min((v, f" ({n})") for n, v in found.items()) if found else None

    return at


def saw_tooth(name: str, narrowest: int = 0) -> Callable[[Contests, str], tuple[float, str] | None]:
    """The lower throughput of two neighbouring points over the higher one, where that is least."""

    def at(contests: Contests, metric: str) -> tuple[float, str] | None:
        found = list(throughput(contests, name, metric).items())
        steps = [
            (min(one, two) / max(one, two), f" ({n}, {following})")
            for (n, one), (following, two) in pairwise(found)
            if n >= narrowest
        ]
        return min(steps, default=None)

    return at


LINES = (
    Line("wsdsl ÷ cuBLAS, geometric mean", mean_of(DEFAULT, BASE), 1.05),
    Line("least (at N)", least_of(DEFAULT, BASE), 0.98),
    Line("wsdsl best ÷ cuBLAS, geometric mean", mean_of(BEST, BASE)),
    Line("least (at N)", least_of(BEST, BASE)),
    Line("wsdsl ÷ wsdsl best, geometric mean", mean_of(DEFAULT, BEST)),
    Line("least (at N)", least_of(DEFAULT, BEST), 0.97),
    Line(f"saw-tooth from {FULL} on: wsdsl", saw_tooth(DEFAULT, FULL), 0.93, "16384"),
    Line(f"saw-tooth from {FULL} on: wsdsl best", saw_tooth(BEST, FULL)),
    Line(f"saw-tooth from {FULL} on: cuBLAS", saw_tooth(BASE, FULL)),
    *(Line(f"saw-tooth: {name}", saw_tooth(name)) for name in (DEFAULT, BEST)),
    Line("saw-tooth: cuBLAS", saw_tooth(BASE)),
)


def cell(line: Line, suite: str, contests: Contests) -> str:
    target = line.least if not line.only or suite.endswith(f"-{line.only}") else 0.0
    found = [line.at(contests, metric) for metric in METRICS]
    shown = [markdown.figure(f[0], target) + f[1] for f in found if f is not None]
    return " · ".join(shown) or "–"


def aim(line: Line) -> str:
    where = f" at K = {line.only}" if line.only else ""
    return f"≥ {line.least:.2f}{where}" if line.least else ""
