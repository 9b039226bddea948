"""Matrix products, C = A Bᵀ: wsdsl beside cuBLAS, QuACK, Triton and JAX Pallas, in one run.

python -m benchmarks.gemm                             # bf16, 4096³ and 8192³
python -m benchmarks.gemm --suite bf16 --quick        # every bf16 suite; also fp8, int8, epilogue
python -m benchmarks.gemm --suite waves --contestant quack,wsdsl
python -m benchmarks.gemm --shape 4096x1280x8192 --schedule "tile.n=128 mode=pingpong cluster.m=2"
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import ours
from benchmarks.contest import (
    QUICK,
    SMOKE,
    SWEPT,
    Bout,
    Contestant,
    Length,
    Rows,
    UnfitError,
    hold,
    line,
    reason,
    warm_up,
)
from benchmarks.field import field, names
from benchmarks.machine import write
from benchmarks.problems import Problem, problem
from benchmarks.suites import GROUPS, KINDS, SUITES, Contest, contests, shape_from

Result = dict[str, Any]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those that choose what is contested; benchmarks.device has them too."""
    suites = [*GROUPS, *SUITES]
    parser.add_argument("--suite", choices=suites, action="append", default=[], metavar="SUITE",
                        help=", ".join(suites))  # fmt: skip
    parser.add_argument("--shape", type=shape_from, action="append", default=[], help="MxNxK")
    parser.add_argument("--kind", choices=KINDS, default="bf16", help="of --shape (bf16)")
    parser.add_argument(
        "--contestant", action="append", default=[], help="torch,quack,triton,pallas,wsdsl"
    )
    parser.add_argument(
        "--schedule",
        action="append",
        default=[],
        help='"tile.n=192 stages=4": "wsdsl best" is the best of these and the default',
    )
    parser.add_argument("--quick", action="store_true", help="the shortest contests that count")
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="no figures: as short as possible, to see that all runs",
    )
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no contest after this time"
    )


def run_options(options: argparse.Namespace, save: Callable[[Result], Any]) -> Result:
    suites = options.suite or (["smoke"] if options.smoke and not options.shape else [])
    return run(
        contests(suites, options.shape, options.kind),
        names(options.contestant),
        options.schedule,
        SMOKE if options.smoke else QUICK if options.quick else Length(),
        save,
        60 * options.minutes,
    )


def run(
    wanted: Sequence[Contest],
    asked: Sequence[str],
    schedules: Sequence[str],
    length: Length,
    save: Callable[[Result], Any] = lambda _: None,
    seconds: float = math.inf,
) -> Result:
    """`save` is given all there is after each contest, so that a run cut short is not lost."""
    began = time.monotonic()
    contestants = field(asked, schedules)
    problems = [problem(c) for c in wanted]
    if "wsdsl" in asked:
        asked_for, made = ours.warm(problems, schedules)
        print(f"wsdsl: {made} of {asked_for} kernels", flush=True)
    warm_up(contestants, problems)
    print(f"ready after {time.monotonic() - began:.0f} s", flush=True)
    result: Result = {"contests": [], "seconds": time.monotonic() - began}
    bouts = [
        Bout(p, [c for c in contestants if takes_part(c, p)], length_of(contest, length))
        for contest, p in zip(wanted, problems, strict=True)
    ]

    def over(index: int, rows: Rows) -> None:
        before = result["seconds"]
        result["seconds"] = time.monotonic() - began
        held = told(wanted[index], problems[index], rows)
        result["contests"].append(held | {"seconds": result["seconds"] - before})
        save(result)

    hold(bouts, over, began + seconds)
    return result


def length_of(contest: Contest, length: Length) -> Length:
    return SWEPT if contest.swept and length == QUICK else length


def told(contest: Contest, posed: Problem, rows: Rows) -> dict[str, Any]:
    for name, row in rows.items():
        print(f"{contest!s:>32}  {name:<12} {line(row)}", flush=True)
        if name.startswith("wsdsl") and row["correct"] and name != "wsdsl plain":
            row |= ours.describe(posed, row["chosen"])
    return {
        "suite": contest.suite,
        "kind": contest.kind.name,
        "shape": contest.name,
        "rows": rows,
    }


def takes_part(c: Contestant, posed: Problem) -> bool:
    """The doubles, which are there for some kinds only, leave no row where they are not."""
    if c.name not in ("torch fast", "torch plain", "wsdsl plain"):
        return True
    try:
        return bool(c.variants(posed))
    except UnfitError:
        return False


def passed(result: Result) -> bool:
    """Is the default correct and measured wherever it compiles?"""
    rows = [
        row
        for contest in result["contests"]
        for name, row in contest["rows"].items()
        if name == "wsdsl" and not refused(row)
    ]
    return all(row["correct"] and "interleaved" in row for row in rows)


def refused(row: dict[str, Any]) -> bool:
    return row.get("failure", "").startswith(("CompileError", "ScheduleError"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--out", type=Path, help="folder of the result file (benchmarks/results)")
    parser.add_argument("--name", default="gemm", help="name of the result file (gemm)")
    parser.add_argument("--json", action="store_true", help="print the result too")
    options = parser.parse_args()
    try:
        result = run_options(options, lambda r: write(options.name, r, options.out))
    except ValueError as error:
        parser.error(reason(error))
    path = write(options.name, result, options.out)
    print(json.dumps(result, indent=1) if options.json else f"written to {path}")
    return 0 if passed(result) else 1


if __name__ == "__main__":
    raise SystemExit(main())
