"""The schedules that "wsdsl best" is chosen from."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from benchmarks.problems import Problem
from benchmarks.suites import Kind, Shape

if TYPE_CHECKING:
    from wsdsl import Schedule
    from wsdsl.dispatch.kernel import Kernel

DEFAULT = "default"
NUM_SMS = 132
LIST = [
    "tile.m=128 tile.n=256 mode=cooperative",
    "tile.m=128 tile.n=256 mode=cooperative stages=4",
    "tile.m=128 tile.n=256 mode=cooperative stages=4 cluster.m=2",
    *(f"tile.m=128 tile.n={n} mode=pingpong" for n in (128, 144, 160, 176, 192)),
    *(f"tile.m=128 tile.n={n} mode=pingpong cluster.m=2" for n in (160, 192)),
    *(f"tile.m=256 tile.n={n} scheduler=persistent" for n in (144, 160, 176, 192)),
]
"""Tried at every shape, beside the widths that fill the last wave."""
BLOCK_SCALED = [
    *(f"tile.m=256 tile.n=128 cluster.{axis}=2" for axis in "mn"),
    "tile.m=256 tile.n=128",
    *(f"tile.m=192 tile.n=128 consumers=3 swizzle={s}" for s in (8, 16)),
    "tile.m=192 tile.n=128 consumers=3 cluster.n=2",
]
FEW_ROWS = [
    # Weights are not what the kernel in front writes.
    "pdl_independent=B",
    "pdl_independent=B mma_m=n tile.n=128 tile.m=16 consumers=2 scheduler=persistent",
    "mma_m=n tile.n=64 consumers=1 scheduler=grid",
    "mma_m=n tile.n=128 consumers=2 scheduler=persistent cluster.n=2 launch_pdl=false",
    *(f"tile.m=64 tile.n={n} consumers=1" for n in (64, 112, 224)),
    "tile.m=64 tile.n=256 mode=pingpong",
    *(f"mma_m=n tile.n=64 tile.m={m} consumers=1" for m in (16, 64)),
    *(f"mma_m=n tile.n=128 tile.m={m}" for m in (16, 64, 128)),
    *(f"tile.m=128 tile.n={n} mode=cooperative" for n in (224, 240)),
]
DEEP_TILES = [(64, 32), (64, 64), (64, 128), (128, 64), (128, 128)]
MOST_SPLITS = 33
SMALL = ["tile.m=128 tile.n=64 mode=cooperative", "tile.m=64 tile.n=128 consumers=1"]
BY_MODEL = {"cooperative": 5, "pingpong": 4, "stream_k": 2, "split_k": 2}
"""Of each way to share out the work, how many of those that the model of schedules ranks first."""


def candidates(problem: Problem, schedules: Sequence[str]) -> list[str]:
    """The default and `schedules`, or a list of our own if there are none."""
    listed = list(schedules)
    if not listed:
        listed = by_model(problem) if problem.swept else usual(problem)
    return [DEFAULT, *dict.fromkeys(listed)]


def usual(problem: Problem) -> list[str]:
    shape = m, n, _ = problem.size
    if problem.kind.scaling == "block":
        return BLOCK_SCALED
    tiles = -(-m // 128) * -(-n // 128)
    if m <= 128 and n > 128:
        return FEW_ROWS
    if tiles < NUM_SMS:
        return list(deep(shape)) if tiles <= 16 else SMALL + LIST
    step = 16 if problem.kind.dtype == "int8" else 8
    fitting = (f"tile.m=128 tile.n={w} mode=cooperative" for w in widths(shape, step))
    return [*LIST, *fitting]


def deep(shape: Shape) -> Iterator[str]:
    """Few tiles with a long contraction: whole, and in as many pieces as there is room for."""
    m, n, k = shape
    yield from (f"tile.m=64 tile.n={n} consumers=1 scheduler=persistent" for n in (32, 64))
    yield "tile.m=128 tile.n=128 scheduler=stream_k"
    for rows, columns in DEEP_TILES:
        most = NUM_SMS // (-(-m // rows) * -(-n // columns))
        for depth in (64, 128):
            # As many as there is room for, and a power of two.
            for splits in sorted({most, 1 << most.bit_length() >> 1}):
                if 1 < splits <= min(MOST_SPLITS, k // depth):
                    tile = f"tile.m={rows} tile.n={columns} tile.k={depth} consumers={rows // 64}"
                    yield f"{tile} scheduler=split_k splits={splits} reduction=parallel"


def widths(shape: Shape, step: int, count: int = 3) -> list[int]:
    """Multiples of `step` that leave the fewest columns idle in the last wave, the widest first."""
    m, n, _ = shape
    rows = -(-m // 128)

    def used(width: int) -> float:
        tiles = rows * -(-n // width)
        return rows * n / (math.ceil(tiles / NUM_SMS) * NUM_SMS * width)

    # Narrow tiles move more bytes for each product: they have to win by more than a little.
    return sorted(range(128, 257, step), key=lambda w: (-used(w) * min(1.0, w / 200), -w))[:count]


def by_model(problem: Problem) -> list[str]:
    """What the model ranks first in each way, so that more than its first choice is measured."""
    return list(_by_model(problem))


def _by_model(problem: Problem) -> Iterator[str]:
    from wsdsl import Schedule
    from wsdsl.lowering.heuristics.ranked import ranked
    from wsdsl.lowering.passes.choose_schedule import completed
    from wsdsl.lowering.pipeline import scheduled_tile

    sizes = sizes_of(problem)
    chosen = scheduled_tile(kernel_of(problem.kind).tile_ir, sizes)
    assert chosen.schedule is not None
    open_ = Schedule(mma_m=chosen.schedule.mma_m)
    taken = Counter[str]()
    for option, _ in ranked(chosen, open_, sizes):
        way = option.scheduler or option.mode or ""
        if taken[way] < BY_MODEL[way]:
            schedule, findings = completed(chosen, option, sizes)
            if not findings:
                taken[way] += 1
                if schedule != chosen.schedule:
                    yield text_of(dataclasses.replace(option, scheduler=schedule.scheduler))


def text_of(schedule: Schedule) -> str:
    """As `--schedule` takes it."""
    tile = (f"tile.{name}={size}" for name, size in (schedule.tile or {}).items())
    cluster = [f"cluster.{name}={num}" for name, num in (schedule.cluster or {}).items()]
    if schedule.multicast is False:
        cluster.append("multicast=false")
    named = ("mma_m", "mode", "consumers", "scheduler", "splits", "reduction")
    held = ((name, getattr(schedule, name)) for name in named)
    others = (f"{name}={value}" for name, value in held if value is not None)
    return " ".join([*tile, *cluster, *others])


def kernel_of(kind: Kind) -> Kernel:
    from benchmarks import kernels

    if kind.epilogue:
        return kernels.gemm_epilogue
    if kind.dtype == "int8":
        return kernels.gemm_int8
    if kind.columns:
        return kernels.gemm_nn if kind.columns == "b" else kernels.gemm_nt
    by_scaling = {
        "none": kernels.gemm,
        "tensor": kernels.gemm_fp8_tensor,
        "row": kernels.gemm_fp8_row,
        "block": kernels.gemm_fp8_block,
    }
    return by_scaling[kind.scaling]


def schedule_of(problem: Problem, text: str) -> Schedule | None:
    from wsdsl.cli.options import schedule_from

    words = [] if text == DEFAULT else text.split()
    if problem.kind.fast:  # never promoted before the last product
        words.append("mma_promotion_interval=0")
    return schedule_from(words)


def sizes_of(problem: Problem) -> dict[str, int]:
    return sizes_by(problem.kind, problem.size)


def sizes_by(kind: Kind, shape: Shape) -> dict[str, int]:
    m, n, k = shape
    sizes = {"M": m, "N": n, "K": k}
    if kind.scaling == "block":
        sizes |= {"NB": n // 128, "KB": k // 128}
    return sizes
