"""How far the model of schedules is from what was measured, and numbers that bring it nearer.

    python -m tools.fit_model MEASURED... [--fit]

MEASURED are files of `benchmarks.predictions`, or result files of `benchmarks.gemm`, of which every
variant of "wsdsl best" counts. The search fits the constants of
`wsdsl/lowering/cost_model/constants.py`; `wsdsl calibrate` measures the parameters of GPUs. Check
the result before you use it, and compare the schedules that follow, since what was measured is what
an earlier model liked.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import predictions
from benchmarks.candidates import DEFAULT
from benchmarks.kernels import gemm
from benchmarks.predictions import Predicted
from benchmarks.results import load
from wsdsl.cli.options import schedule_from
from wsdsl.ir.hardware.target import H200
from wsdsl.lowering.cost_model import constants
from wsdsl.lowering.cost_model.workload import Work

NAMES = [name for name, held in vars(constants).items() if isinstance(held, float)]
STEPS = (0.8, 1.25, 0.9, 1.1, 0.97, 1.03)
NEAR, CLIPPED = 1.4, 0.4
"""Rows that are slower than the best by more count for their error alone, and no error for more."""
LEVEL = 0.3
"""The weight of errors that all rows of a kernel have in common."""


def read(path: Path) -> Iterator[list[Predicted]]:
    """Rows, kernel by kernel."""
    held = json.loads(path.read_text())
    if "contests" in held:
        for contest in load(path)["contests"]:
            sizes = dict(zip("MNK", map(int, contest["shape"].split("x")), strict=True))
            yield [Predicted(gemm.tile_ir, sizes, row, H200) for row in variants(contest)]
        return
    rows: dict[str, list[Any]] = defaultdict(list)
    for row in held["rows"]:
        rows[row["case"]].append(row)
    for case in predictions.posed(**held["cases"]):
        yield predictions.predicted(case, rows.get(case.name, []), held["gpu"])


def variants(contest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows of what was tried in a contest of bf16 products."""
    rows = contest["rows"]
    if contest["kind"] != "bf16" or "schedule" not in rows.get("wsdsl", {}):
        return
    for name, tried in rows.get("wsdsl best", {}).get("variants", {}).items():
        if "microseconds" in tried:
            given = None if name == DEFAULT else repr(schedule_from(name.split()))
            yield {"us": tried["microseconds"], "schedule": given or rows["wsdsl"]["schedule"]}


def loss(kernels: Sequence[Sequence[Predicted]]) -> float:
    """Of each kernel: the errors of good schedules beside each other, part of what they have in
    common, and by how much what is predicted to be the best is slower than the best.
    """
    return statistics.mean(map(_loss, kernels))


def _loss(rows: Sequence[Predicted]) -> float:
    best = min(row.measured for row in rows)
    found = [(row.microseconds, row.measured) for row in rows]
    errors = [math.log(p / m) for p, m in found]
    near = [e for e, (_, m) in zip(errors, found, strict=True) if m < NEAR * best]
    level = statistics.mean(near)
    apart = statistics.mean(min(CLIPPED, abs(e - level)) for e in near)
    off = statistics.mean(min(CLIPPED, abs(e)) for e in errors)
    return apart + LEVEL * off + min(CLIPPED, math.log(min(found)[1] / best))


def put(name: str, value: float) -> None:
    setattr(constants, name, value)


def fit(kernels: Sequence[Sequence[Predicted]]) -> None:
    """Change one number after the other, for as long as that helps."""
    best, better = loss(kernels), True
    while better:
        better = False
        for name in NAMES:
            for step in STEPS:
                kept = getattr(constants, name)
                put(name, kept * step)
                for row in (row for rows in kernels for row in rows):
                    row.work = Work(row.work.kernel, row.work.sizes)
                if (now := loss(kernels)) < best * (1 - 1e-4):
                    best, better = now, True
                    print(f"{name} {kept:.4g} -> {kept * step:.4g}: {now:.5f}", flush=True)
                else:
                    put(name, kept)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("measured", type=Path, nargs="+")
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args()
    kernels = [rows for path in options.measured for rows in read(path) if len(rows) > 2]
    print(f"{len(kernels)} kernels, {sum(map(len, kernels))} schedules: loss {loss(kernels):.5f}")
    if options.fit:
        fit(kernels)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
