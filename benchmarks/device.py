"""Everything that needs a GPU, in one run: tests/gpu, then the benchmarks.

    python -m benchmarks.device                    # all of it
    python -m benchmarks.device --tests            # the tests alone
    python -m benchmarks.device --bench --quick --out results
    python -m benchmarks.device --gemm --suite bf16 --contestant quack,triton,wsdsl --minutes 9

Each kernel runs in a child process under a watchdog, so a deadlock costs 20 s and not the run.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import compile_time, gemm, gpu_tests, host_time, machine

Save = Callable[[Any], Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", action="store_true", help="tests/gpu")
    parser.add_argument("--bench", action="store_true", help="all benchmarks")
    parser.add_argument("--gemm", action="store_true", help="the matrix products")
    parser.add_argument("--out", type=Path, help="folder of the result files (benchmarks/results)")
    parser.add_argument("--name", default="gemm", help="name of the products' file (gemm)")
    parser.add_argument(
        "--part", type=part_from, default=(0, 1), metavar="I/N", help="each Nth test from the Ith"
    )
    parser.add_argument("-k", metavar="EXPRESSION", help="choose tests, as pytest does")
    gemm.add_options(parser)
    options = parser.parse_args()
    every = not (options.tests or options.bench or options.gemm)
    told = machine.description()
    print(f"{told['gpu'] or 'no GPU'}\n{told['versions']}", flush=True)

    steps: list[tuple[str, Callable[[Save], Any], Callable[[Any], bool]]] = []
    if every or options.tests:
        chosen = [str(gpu_tests.FOLDER), *(["-k", options.k] if options.k else [])]
        part, parts = options.part
        tests = lambda _: gpu_tests.run(chosen, part=part, parts=parts)  # noqa: E731
        steps.append(("gpu_tests", tests, gpu_tests.passed))
    if every or options.bench or options.gemm:
        race = lambda save: gemm.run_options(options, save)  # noqa: E731
        steps.append((options.name, race, gemm.passed))
    if every or options.bench:
        times = 3 if options.quick else 7
        steps.append(("compile_time", lambda _: compile_time.run(times), lambda _: True))
        steps.append(("host_time", lambda _: host_time.run(), lambda _: True))

    verdicts = {name: step(name, work, good, options.out) for name, work, good in steps}
    print("\n".join(f"{name:<14} {'passed' if ok else 'FAILED'}" for name, ok in verdicts.items()))
    return 0 if all(verdicts.values()) else 1


def part_from(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and int(part) < int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is no part; expected I/N, 0/4 to 3/4")
    return int(part), int(parts)


def step(
    name: str, work: Callable[[Save], Any], good: Callable[[Any], bool], out: Path | None
) -> bool:
    """One part of the run; its failure does not take the others with it, nor what it had saved."""
    began = time.monotonic()
    print(f"==== {name}", flush=True)
    kept: dict[str, Any] = {}

    def save(result: dict[str, Any]) -> None:
        kept.update(result)
        machine.write(name, result, out)

    try:
        result = work(save)
    except Exception:
        traceback.print_exc()
        result, fine = kept | {"failure": traceback.format_exc()}, False
    else:
        fine = good(result)
    path = machine.write(name, result, out)
    print(f"{path}  ({time.monotonic() - began:.0f} s)", flush=True)
    return fine


if __name__ == "__main__":
    raise SystemExit(main())
