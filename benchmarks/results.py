"""Result files: read, and merge several runs into one.

python -m benchmarks.results first.json second.json -o benchmarks/results/gemm.json

A merged file lists its runs; every row says by its number which run it is of, since ratios hold
within one run only. Where two files have the same row, the later file's is taken; where a contest
is there again as a whole, with its base, so are all rows that the later run has.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

HEAD = ("gpu", "cpu", "versions", "date", "command")
BASE = "torch"
METRICS = ("interleaved", "sustained")


def load(path: Path) -> dict[str, Any]:
    """A merged result: `runs`, and `contests` whose rows have the number of their `run`."""
    held = json.loads(path.read_text())
    if "runs" in held:
        return held
    contests = held["result"]["contests"]
    for contest in contests:
        for row in contest["rows"].values():
            row["run"] = 0
    return {"runs": [{key: held[key] for key in HEAD if key in held}], "contests": contests}


def merge(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    runs: list[dict[str, Any]] = []
    contests: dict[tuple[str, str, str], dict[str, Any]] = {}
    for result in results:
        first = len(runs)
        runs += result["runs"]
        for contest in result["contests"]:
            key = (contest["suite"], contest["kind"], contest["shape"])
            held = contests.setdefault(key, {**contest, "rows": {}})
            for name, row in contest["rows"].items():
                held["rows"][name] = row | {"run": row["run"] + first}
    return with_runs_of_rows(runs, list(contests.values()))


def with_runs_of_rows(runs: list[dict[str, Any]], contests: list[dict[str, Any]]) -> dict[str, Any]:
    """Without the runs of which nothing is left."""
    left = sorted({row["run"] for contest in contests for row in contest["rows"].values()})
    number = {run: n for n, run in enumerate(left)}
    for contest in contests:
        rows = contest["rows"].items()
        contest["rows"] = {name: row | {"run": number[row["run"]]} for name, row in rows}
    return {"runs": [runs[run] for run in left], "contests": contests}


def ratio(row: dict[str, Any], metric: str) -> float | None:
    """To the base; None where the row was not measured or is not correct."""
    return row[metric]["ratio"] if row.get("correct") and metric in row else None


def ratio_between(
    rows: dict[str, dict[str, Any]], name: str, other: str, metric: str
) -> float | None:
    """Of two contestants, both measured in one run."""
    first, second = rows.get(name, {}), rows.get(other, {})
    if first.get("run") != second.get("run"):
        return None
    a, b = ratio(first, metric), ratio(second, metric)
    return a / b if a and b else None


def geomean(values: Iterable[float]) -> float:
    found = list(values)
    return math.exp(sum(map(math.log, found)) / len(found)) if found else math.nan


def contestants(contests: Sequence[dict[str, Any]]) -> list[str]:
    """All that were measured somewhere, in the order of the field, wsdsl last."""
    names = dict.fromkeys(
        name
        for contest in contests
        for name, row in contest["rows"].items()
        if ratio(row, METRICS[0]) is not None
    )
    return sorted(names, key=lambda name: name.startswith("wsdsl"))


def by_suite(result: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for contest in result["contests"]:
        found.setdefault(contest["suite"], []).append(contest)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+", metavar="RESULT.json")
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    merged = merge([load(path) for path in options.files])
    options.out.write_text(json.dumps(merged, indent=1) + "\n")
    print(f"{len(merged['contests'])} contests of {len(merged['runs'])} runs: {options.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
