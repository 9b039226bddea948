"""Neighbouring points of a sweep against each other, all of them in one contest.

python -m benchmarks.saw_tooth --out results      (needs a GPU)

The suites measure one point after the other, some seconds apart, and by then a card that is limited
by its power runs at another clock: that shows as a step from one point to the next. Here each round
has a burst of every point, by everybody, in shuffled order; and the steps are those of rounds.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import ours
from benchmarks.burst import Burst
from benchmarks.contest import SEPARATOR, SWEPT, Contestant
from benchmarks.field import BASE, field
from benchmarks.machine import write
from benchmarks.problems import Problem, problem
from benchmarks.race import interleaved, sustained
from benchmarks.suites import SWEEPS, Contest, contests
from benchmarks.sweeps import DEFAULT, FULL
from benchmarks.watchdog import Report, watched

Times = dict[str, list[float]]
"""Seconds a call in each round, by contestant and N."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", choices=SWEEPS, default="sweep-16384")
    parser.add_argument("--out", type=Path, help="folder of the result file (benchmarks/results)")
    options = parser.parse_args()
    result = run([c for c in contests([options.suite], []) if c.shape[1] >= FULL])
    print(f"written to {write('saw_tooth', result, options.out)}")
    return 0


def run(wanted: Sequence[Contest]) -> dict[str, Any]:
    """The throughput of every point, and the largest step of everybody."""
    contestants = [c for c in field([BASE, "wsdsl"], []) if c.name in (BASE, DEFAULT)]
    problems = [problem(c) for c in wanted]
    ours.warm(problems, [])
    outcome = watched(measure, problems, contestants)
    if not outcome.ok:
        raise SystemExit(str(outcome))
    told: dict[str, Any] = {"points": {}, "steps": {}}
    for metric, times in outcome.value.items():
        for c in contestants:
            held = {p.size[1]: times[name_of(c, p)] for p in problems}
            rates = {p.size[1]: p.flop / statistics.median(held[p.size[1]]) for p in problems}
            told["points"].setdefault(c.name, {})[metric] = {n: r / 1e12 for n, r in rates.items()}
            lowest, at = min(steps(held))
            told["steps"].setdefault(c.name, {})[metric] = {"ratio": lowest, "at": at}
            print(f"{c.name:<8} {metric:<12} lowest of neighbours {lowest:.3f} at {at}", flush=True)
    return told


def steps(times: dict[int, list[float]]) -> list[tuple[float, list[int]]]:
    """The lower throughput of two neighbouring points over the higher one: of work for the same
    number of rows, the median of the rounds."""
    found: list[tuple[float, list[int]]] = []
    for (n, first), (following, second) in pairwise(sorted(times.items())):
        ratios = [b / following / (a / n) for a, b in zip(first, second, strict=True)]
        middle = statistics.median(ratios)
        found.append((min(middle, 1 / middle), [n, following]))
    return found


def name_of(c: Contestant, posed: Problem) -> str:
    return SEPARATOR.join((c.name, str(posed.size[1])))


def measure(
    report: Report, problems: Sequence[Problem], contestants: Sequence[Contestant]
) -> dict[str, Times]:
    import torch

    bursts: dict[str, Burst] = {}
    kept: list[tuple[Any, ...]] = []  # graphs hold no memory
    for posed in problems:
        report(f"operands of {posed.name}")
        out = torch.empty(posed.shape, dtype=posed.dtype, device="cuda")
        kept.append((*posed.operands(0), out))
        for c in contestants:
            said = name_of(c, posed) + SEPARATOR
            call = c.variants(posed)[0].make()
            bursts[name_of(c, posed)] = Burst(said, call, kept[-1:], report, SWEPT.burst)
    return {
        "interleaved": interleaved(report, bursts, SWEPT),
        "sustained": sustained(report, bursts, SWEPT),
    }


if __name__ == "__main__":
    raise SystemExit(main())
