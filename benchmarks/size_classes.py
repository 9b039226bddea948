"""How few kernels serve many numbers of rows, and what that costs.

python -m benchmarks.size_classes [--rows 60] [--most 4096] [--seed 0] [--measure]

For random numbers of rows: kernels when each number has its own, kernels by classes, and how much
longer these take in the mean, as predicted; with --measure also on the GPU, in turns of some
milliseconds of either, the median of their ratios for each number of rows.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks import kernels
from benchmarks.markdown import table
from wsdsl import Kernel
from wsdsl.lowering.shape_buckets import predicted_cycles

CASES: tuple[tuple[str, Mapping[str, int]], ...] = (
    ("gemm", dict(N=4096, K=4096)),
    ("gemm", dict(N=14336, K=4096)),
    ("gemm", dict(N=4096, K=14336)),
    ("gemm", dict(N=1024, K=4096)),
    ("gemm", dict(N=7168, K=2048)),
    ("gemm_nn", dict(N=4096, K=4096)),
    ("gemm_epilogue", dict(N=5120, K=5120)),
    ("gemm_fp8_row", dict(N=7168, K=2048)),
)
ROUNDS, BURST_SECONDS, SETS = 7, 0.003, 3


@dataclass(frozen=True)
class Found:
    """`longer`: by how much in the mean, as a factor less 1; `choosing`: seconds."""

    kernel: str
    sizes: str
    alone: int
    classes: int
    longer: float
    most: float
    choosing: float
    measured: float | None = None
    rows: tuple[tuple[int, float, float | None], ...] = ()
    """Of each number of rows: what is predicted and what is measured, in relation to its own."""


def look(name: str, sizes: Mapping[str, int], rows: Sequence[int], *, measure: bool) -> Found:
    kernel: Kernel = getattr(kernels, name)
    alone: set[Any] = set()
    shared: set[Any] = set()
    ratios: list[float] = []
    choosing = 0.0
    for m in rows:
        asked = {"M": m, **sizes}
        own = kernel.schedule(**asked)
        begin = time.perf_counter()
        taken = kernel.dispatched_schedule(**asked)
        choosing += time.perf_counter() - begin
        alone.add(own)
        shared.add(taken)
        cycles = (predicted_cycles(kernel.tile_ir, schedule, asked) for schedule in (taken, own))
        ratios.append(next(cycles) / next(cycles))
    times = measured(kernel, sizes, rows) if measure else None
    return Found(
        name,
        ", ".join(f"{dim} = {size}" for dim, size in sizes.items()),
        len(alone),
        len(shared),
        statistics.mean(ratios) - 1,
        max(ratios) - 1,
        choosing,
        statistics.mean(times) - 1 if times else None,
        tuple(zip(rows, ratios, times or (None,) * len(rows), strict=True)),
    )


def measured(kernel: Kernel, sizes: Mapping[str, int], rows: Sequence[int]) -> list[float] | None:
    """For each number of rows; None for a kernel of other operands than A and B of bf16."""
    if len(kernel.params) != 3 or any("f8" in str(p.type) for p in kernel.params):
        return None
    import torch

    from benchmarks.burst import Burst

    def made(*dims: str | int) -> Any:
        return torch.randn(*(asked[d] for d in dims), device="cuda").bfloat16()

    ratios: list[float] = []
    for m in rows:
        asked = {"M": m, **sizes}
        shapes = [p.type.dims for p in kernel.params]  # pyright: ignore[reportAttributeAccessIssue]
        sets = [tuple(made(*dims) for dims in shapes) for _ in range(SETS)]
        calls = [lambda *args, exact=exact: kernel(*args, exact=exact) for exact in (False, True)]
        bursts = [Burst("", call, sets, lambda *_: None, BURST_SECONDS) for call in calls]
        rounds: list[float] = []
        for turn in range(ROUNDS):
            order = (0, 1) if turn % 2 else (1, 0)
            spent = {i: bursts[i].run(BURST_SECONDS) for i in order}
            rounds.append(spent[0] / spent[1])
        ratios.append(statistics.median(rounds))
    return ratios


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=60, help="how many numbers of rows")
    parser.add_argument("--most", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--measure", action="store_true", help="on the GPU too")
    parser.add_argument("--only", type=int, help="the case of this number")
    parser.add_argument("--json", action="store_true", help="every number of rows, too")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    rows = [draw.randint(1, options.most) for _ in range(options.rows)]
    cases = CASES if options.only is None else CASES[options.only : options.only + 1]
    found = [look(name, sizes, rows, measure=options.measure) for name, sizes in cases]
    if options.json:
        print(json.dumps([asdict(row) for row in found], indent=2))
        return 0
    head = "", "each its own", "by classes", "predicted", "worst", "chosen in", "measured"
    cells = [
        (
            f"{row.alone} kernels",
            str(row.classes),
            f"{100 * row.longer:+.1f} %",
            f"{100 * row.most:+.0f} %",
            f"{row.choosing:.2f} s",
            "–" if row.measured is None else f"{100 * row.measured:+.1f} %",
        )
        for row in found
    ]
    print(table(head, [f"{row.kernel}, {row.sizes}" for row in found], cells))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
