"""Everything that needs a GPU, in one run: tests/gpu, then the benchmarks.

    python -m benchmarks.device                    # all of it
    python -m benchmarks.device --tests            # the tests alone
    python -m benchmarks.device --bench --quick --out results

Each kernel runs in a child process under a watchdog, so a deadlock costs 20 s and not the run.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import compile_time, gemm, gpu_tests, machine
from benchmarks.contest import QUICK, Length


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", action="store_true", help="tests/gpu only")
    parser.add_argument("--bench", action="store_true", help="the benchmarks only")
    parser.add_argument("--quick", action="store_true", help="the shortest contests that count")
    parser.add_argument("--out", type=Path, help="folder of the result files (benchmarks/results)")
    parser.add_argument("--suite", choices=gemm.SUITES, action="append", default=[])
    parser.add_argument("-k", metavar="EXPRESSION", help="choose tests, as pytest does")
    options = parser.parse_args()
    both = options.tests == options.bench
    told = machine.description()
    print(f"{told['gpu'] or 'no GPU'}\n{told['versions']}", flush=True)

    steps: list[tuple[str, Callable[[], Any], Callable[[Any], bool]]] = []
    if both or options.tests:
        chosen = [str(gpu_tests.FOLDER), *(["-k", options.k] if options.k else [])]
        steps.append(("gpu_tests", lambda: gpu_tests.run(chosen), gpu_tests.passed))
    if both or options.bench:
        shapes = [s for name in options.suite for s in gemm.SUITES[name]]
        length = QUICK if options.quick else Length()
        race = lambda: gemm.run(shapes or gemm.SUITES["default"], [], length)  # noqa: E731
        steps.append(("gemm", race, gemm.passed))
        times = 3 if options.quick else 7
        steps.append(("compile_time", lambda: compile_time.run(times), lambda _: True))

    verdicts = {name: step(name, work, good, options.out) for name, work, good in steps}
    print("\n".join(f"{name:<14} {'passed' if ok else 'FAILED'}" for name, ok in verdicts.items()))
    return 0 if all(verdicts.values()) else 1


def step(name: str, work: Callable[[], Any], good: Callable[[Any], bool], out: Path | None) -> bool:
    """One part of the run; its failure does not take the others with it."""
    began = time.monotonic()
    print(f"==== {name}", flush=True)
    try:
        result = work()
    except Exception:
        traceback.print_exc()
        result, fine = {"failure": traceback.format_exc()}, False
    else:
        fine = good(result)
    path = machine.write(name, result, out)
    print(f"{path}  ({time.monotonic() - began:.0f} s)", flush=True)
    return fine


if __name__ == "__main__":
    raise SystemExit(main())
