"""How far the model of schedules is from what was measured, and constants that bring it nearer.

python -m tools.fit_model measured [--fit] [--clock GHZ]

`measured` is a result file of benchmarks.gemm, of which every variant of "wsdsl best" counts, or
has a row a line: an object with the sizes (M, N, K) of a bf16 product, `schedule` as its repr, and
`us`, microseconds in short bursts; where there is `sustained` too the mean counts. Rows whose
schedule is not wsdsl's are left out. What is fitted, constants of tiles in pieces and of idle SMs,
are the errors relative to other rows of the same sizes, since the choice depends on these. A search
of this kind ends where it ends: look at what it gives before you take it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.candidates import DEFAULT
from benchmarks.kernels import gemm
from benchmarks.results import load
from wsdsl.cli.options import schedule_from, written_schedule
from wsdsl.ir.target import H200, Target
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.model import predict, split_k_cost
from wsdsl.lowering.model.workload import Work
from wsdsl.lowering.pipeline import scheduled_tile

CONSTANTS: list[tuple[ModuleType, str]] = [
    (split_k_cost, "WRITE_BYTES"),
    (split_k_cost, "READ_BYTES"),
    (split_k_cost, "HAND_OVER_CYCLES"),
    (split_k_cost, "LOAD_CYCLES"),
    (predict, "LOST_REUSE"),
    (predict, "BOOST"),
    (predict, "QUICKEST"),
]
FACTORS = (0.5, 0.8, 0.9, 0.97, 1.03, 1.1, 1.25, 2.0)
FAR, FAR_WEIGHT, CLIPPED = 1.3, 0.2, 0.5
FEWEST, MOST = 0.1, 10.0
"""Constants stay within these factors of what they were."""


class Row:
    def __init__(self, held: dict[str, Any], card: Target) -> None:
        self.sizes = {name: int(held[name]) for name in "MNK"}
        given = written_schedule(held["schedule"])
        posed = dataclasses.replace(gemm.tile, schedule=given, card=card)
        kernel = scheduled_tile(posed, self.sizes)
        self.schedule = kernel.schedule or given
        self.work, self.tile = Work(kernel, self.sizes), axis_sizes(kernel, self.schedule)
        self.measured = math.sqrt(held["us"] * held.get("sustained", held["us"]))
        self.name = str(held.get("name", ""))

    @property
    def shape(self) -> str:
        return "x".join(str(size) for size in self.sizes.values())

    def predicted(self) -> float:
        return predict.predict(self.work, self.schedule, self.tile).microseconds

    def error(self) -> float:
        return math.log(self.predicted() / self.measured)


def read(path: Path, card: Target = H200) -> list[Row]:
    if path.suffix == ".json":
        return [Row(row, card) for contest in load(path)["contests"] for row in variants(contest)]
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return [Row(row, card) for row in rows if "us" in row and "Schedule(" in row["schedule"]]


def variants(contest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows of what was tried in a contest of bf16 products."""
    rows = contest["rows"]
    if contest["kind"] != "bf16" or "schedule" not in rows.get("wsdsl", {}):
        return
    sizes = dict(zip("MNK", map(int, contest["shape"].split("x")), strict=True))
    for name, tried in rows.get("wsdsl best", {}).get("variants", {}).items():
        if "microseconds" in tried:
            given = None if name == DEFAULT else repr(schedule_from(name.split()))
            figures = {"us": tried["microseconds"]}
            if "sustained_microseconds" in tried:
                figures["sustained"] = tried["sustained_microseconds"]
            yield sizes | figures | {"schedule": given or rows["wsdsl"]["schedule"]}


def loss(rows: Sequence[Row]) -> float:
    """Mean square of the errors within each shape; rows far from the best count less."""
    total, weights = 0.0, 0.0
    for shape in {row.shape for row in rows}:
        same = [row for row in rows if row.shape == shape]
        best = min(row.measured for row in same)
        near = [FAR_WEIGHT if row.measured > FAR * best else 1.0 for row in same]
        errors = [max(-CLIPPED, min(CLIPPED, row.error())) for row in same]
        level = sum(w * e for w, e in zip(near, errors)) / sum(near)
        total += sum(w * (e - level) ** 2 for w, e in zip(near, errors))
        weights += sum(near)
    return total / weights


def fit(rows: Sequence[Row]) -> None:
    """Change one constant after the other, for as long as that helps."""
    first = {name: getattr(module, name) for module, name in CONSTANTS}
    best, better = loss(rows), True
    while better:
        better = False
        for module, name in CONSTANTS:
            kept = getattr(module, name)
            for factor in FACTORS:
                within = FEWEST <= kept * factor / first[name] <= MOST
                if within and not (name == "QUICKEST" and kept * factor > 1):
                    setattr(module, name, kept * factor)
                    now = loss(rows)
                    if now < best * (1 - 1e-4):
                        best, better, kept = now, True, kept * factor
                    setattr(module, name, kept)


def show(rows: Sequence[Row]) -> None:
    for row in sorted(rows, key=lambda row: (row.shape, row.measured)):
        way = row.schedule.scheduler or ""
        way += f" {row.schedule.splits} {row.schedule.reduction}" if row.schedule.splits else ""
        tile = " ".join(f"{k}={v}" for k, v in (row.schedule.tile or {}).items())
        told = f"{row.measured:8.1f} µs, predicted {row.predicted():8.1f} ({row.error():+6.1%})"
        print(f"{row.shape:>18} {told}  {row.schedule.mode}, {tile}, {way}")
    chosen = []
    for shape in sorted({row.shape for row in rows}):
        same = [row for row in rows if row.shape == shape]
        taken = min(same, key=Row.predicted)
        chosen.append(math.log(taken.measured / min(row.measured for row in same)))
    print(f"error within the same sizes: {math.sqrt(loss(rows)):.1%} (root mean square)")
    print(
        f"what is predicted the quickest is behind the quickest by {max(chosen):.1%} at most, "
        f"{sum(chosen) / len(chosen):.1%} in the mean"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--fit", action="store_true", help="search for better constants")
    parser.add_argument("--clock", type=float, default=H200.clock, help="GHz")
    options = parser.parse_args()
    rows = read(options.file, dataclasses.replace(H200, clock=options.clock))
    if options.fit:
        fit(rows)
        for module, name in CONSTANTS:
            print(f"{module.__name__}.{name} = {getattr(module, name):.4g}")
    show(rows)


if __name__ == "__main__":
    main()
