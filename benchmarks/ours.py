"""wsdsl's own contestants: the default schedule, and the best of a list."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.contest import Call, Contestant, UnfitError, Variant, reason
from benchmarks.problems import Problem
from benchmarks.suites import Kind, Shape

if TYPE_CHECKING:
    from wsdsl import Schedule
    from wsdsl.compiler import Kernel

DEFAULT = "default"
NUM_SMS = 132
WORKERS = 8
LIST = [
    "tile.m=128 tile.n=256 mode=cooperative",
    "tile.m=128 tile.n=256 mode=cooperative stages=4",
    "tile.m=128 tile.n=256 mode=cooperative stages=4 cluster.m=2",
    *(f"tile.m=128 tile.n={n} mode=pingpong" for n in (128, 144, 160, 176, 192)),
    *(f"tile.m=128 tile.n={n} mode=pingpong cluster.m=2" for n in (160, 192)),
]
"""Tried at every shape, beside the widths that fill the last wave."""
FEW_ROWS = [
    # Weights are not what the kernel in front writes.
    "constant=B",
    "constant=B mma=n tile.n=128 tile.m=16 consumers=2 scheduler=persistent",
    *(f"tile.m=64 tile.n={n} consumers=1" for n in (64, 112, 224)),
    "tile.m=64 tile.n=256 mode=pingpong",
    *(f"mma=n tile.n=64 tile.m={m} consumers=1" for m in (16, 64)),
    *(f"mma=n tile.n=128 tile.m={m}" for m in (16, 64, 128)),
    *(f"tile.m=128 tile.n={n} mode=cooperative" for n in (224, 240)),
]
DEEP = [
    *(f"tile.m=64 tile.n={n} consumers=1" for n in (16, 32, 64)),
    *(
        f"tile.m=64 tile.n={n} tile.k={k} consumers=1 scheduler=split_k splits={s} reduction=slices"
        for n, k, s in ((64, 128, 8), (128, 64, 16), (128, 64, 4), (32, 128, 16))
    ),
    "tile.m=128 tile.n=128 scheduler=stream_k",
]
SMALL = ["tile.m=128 tile.n=64 mode=cooperative", "tile.m=64 tile.n=128 consumers=1"]
_compiled: dict[tuple[str, str, Shape], Any] = {}
"""What `warm` made, or why not; children are forked from the process that holds it."""


def contestants(schedules: Sequence[str]) -> list[Contestant]:
    """`schedules`: what "best" is chosen from, beside the default; a list of our own if empty."""
    return [
        Contestant("wsdsl", lambda p: [variant(p, DEFAULT)], lay_out=lay_out),
        Contestant(
            "wsdsl best",
            lambda p: [variant(p, t) for t in candidates(p, schedules)],
            lay_out=lay_out,
        ),
        Contestant("wsdsl plain", plain_variants, reference=product),
    ]


def lay_out(*operands: Any) -> tuple[Any, ...]:
    """Scales of blocks along M, as cuBLASLt has them too."""
    a, b, *scales = operands
    if scales and scales[0].dim() == 2 and scales[0].dtype.itemsize == 4:
        scales[0] = scales[0].T.contiguous()
    return (a, b, *scales)


def variant(problem: Problem, text: str) -> Variant:
    return Variant(text, partial(make, problem, text), "wsdsl" if text == DEFAULT else "")


def plain_variants(problem: Problem) -> list[Variant]:
    """Beside a fused epilogue: the product alone."""
    if not problem.kind.epilogue:
        raise UnfitError("only beside an epilogue")
    from benchmarks.kernels import gemm

    return [Variant(DEFAULT, lambda: lambda a, b, bias, residual, out: gemm(a, b, out))]


def product(a: Any, b: Any, *_: Any) -> Any:
    return a.double() @ b.double().T


def candidates(problem: Problem, schedules: Sequence[str]) -> list[str]:
    m, n, _ = problem.size
    listed = list(schedules)
    if not listed:
        tiles = -(-m // 128) * -(-n // 128)
        fitting = (f"tile.m=128 tile.n={w} mode=cooperative" for w in widths(problem.size))
        listed = [*LIST, *fitting]
        if m <= 128:
            listed = FEW_ROWS
        elif tiles < NUM_SMS:
            listed = DEEP if tiles <= 16 else SMALL + LIST
    return [DEFAULT, *dict.fromkeys(listed)]


def widths(shape: Shape, count: int = 3) -> list[int]:
    """Multiples of 16 that leave the fewest columns idle in the last wave, the widest first."""
    m, n, _ = shape
    rows = -(-m // 128)

    def used(width: int) -> float:
        tiles = rows * -(-n // width)
        return rows * n / (math.ceil(tiles / NUM_SMS) * NUM_SMS * width)

    # Narrow tiles move more bytes for each product: they have to win by more than a little.
    return sorted(range(128, 257, 16), key=lambda w: (-used(w) * min(1.0, w / 200), -w))[:count]


def kernel_of(kind: Kind) -> Kernel:
    from benchmarks import kernels

    if kind.epilogue:
        return kernels.gemm_epilogue
    if kind.dtype == "int8":
        return kernels.gemm_int8
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
        words.append("precise_every=0")
    return schedule_from(words)


def compile_for(problem: Problem, text: str) -> Any:
    """The compiled kernel; CompileError, ScheduleError and their like where it is refused."""
    m, n, k = problem.size
    sizes = {"M": m, "N": n, "K": k}
    if problem.kind.scaling == "block":
        sizes |= {"NB": n // 128, "KB": k // 128}
    return kernel_of(problem.kind).compile(schedule=schedule_of(problem, text), **sizes)


class RefusedError(UnfitError):
    """wsdsl's own message, as it was given when the schedule was compiled ahead."""


def warm(problems: Sequence[Problem], schedules: Sequence[str]) -> tuple[int, int]:
    """Compile everything in this process, on a few threads; how many were asked for, and made."""
    todo = {(p.kind.name, text, p.size): p for p in problems for text in candidates(p, schedules)}

    def work(item: tuple[tuple[str, str, Shape], Problem]) -> None:
        key, problem = item
        try:
            _compiled[key] = compile_for(problem, key[1])
        except Exception as error:
            _compiled[key] = RefusedError(reason(error))

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, todo.items()))
    return len(todo), sum(not isinstance(_compiled[key], RefusedError) for key in todo)


def make(problem: Problem, text: str) -> Call:
    key = (problem.kind.name, text, problem.size)
    found = _compiled[key] if key in _compiled else compile_for(problem, text)
    if isinstance(found, RefusedError):
        raise found
    kernel, schedule = kernel_of(problem.kind), schedule_of(problem, text)

    def call(a: Any, b: Any, *more: Any) -> None:
        kernel(a, b, *more, schedule=schedule)

    return call


def describe(problem: Problem, text: str) -> dict[str, Any]:
    """The whole schedule that was run, and what it takes."""
    from wsdsl.cli.commands import resources_of

    made = compile_for(problem, text)
    return {"schedule": repr(made.schedule), "resources": resources_of(made)}
