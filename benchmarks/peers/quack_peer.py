"""QuACK: the configurations that its own autotuner tries on Hopper, and a few more.

Its kernels are the same for all shapes and are kept on disk ($QUACK_CACHE_DIR, else /tmp).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from benchmarks.contest import Call, Contestant, UnfitError, Variant, Work
from benchmarks.problems import Problem
from benchmarks.suites import Contest
from benchmarks.watchdog import Report

NUM_SMS = 132
WARM_SHAPE = (256, 512, 1024)


@dataclass(frozen=True)
class Config:
    m: int
    n: int
    pingpong: bool = False
    cluster: tuple[int, int] = (2, 1)
    swap: bool = False
    splits: int = 1
    separate: bool = False
    """Splits are added up by a second kernel (else in turn, by the last one)."""

    def __str__(self) -> str:
        words = [f"{self.m}x{self.n}", "pingpong" if self.pingpong else "cooperative"]
        words += [f"cluster {self.cluster[0]}x{self.cluster[1]}"]
        words += ["swapped"] if self.swap else []
        words += [f"splits {self.splits}{' separate' if self.separate else ''}"] * (self.splits > 1)
        return " ".join(words)


COOPERATIVE = [(128, 256), (256, 128), (256, 160), (256, 192), (256, 208), (128, 224)]
PINGPONG = [(128, 128), (128, 160), (128, 192), (128, 208), (192, 128)]
CLUSTERED = [
    Config(m, n, pingpong, cluster)
    for cluster in ((2, 1), (1, 2))
    for pingpong, tiles in ((False, COOPERATIVE), (True, PINGPONG))
    for m, n in tiles
]
ALONE = [
    Config(128, 256, False, (1, 1)),
    Config(256, 128, False, (1, 1)),
    Config(128, 128, True, (1, 1)),
    Config(128, 160, True, (1, 1)),
    Config(128, 192, True, (1, 1)),
]
FEW_ROWS = [
    *(Config(128, n, True, (1, 1), swap=True) for n in (16, 32, 64, 128)),
    *(Config(128, n, True, (2, 1), swap=True) for n in (64, 128)),
    *(Config(256, n, False, (1, 1), swap=True) for n in (16, 32, 64, 128)),
    *(Config(64, n, False, (1, 1)) for n in (128, 256)),
    Config(128, 128, True, (1, 1)),
]


def contestants() -> list[Contestant]:
    return [Contestant("quack", variants, warm, lay_out)]


def configs(problem: Problem) -> list[Config]:
    m, n, k = problem.size
    if problem.kind.dtype != "bf16" or problem.kind.epilogue:
        return CLUSTERED + ALONE
    found = [c for c in FEW_ROWS if not c.swap or c.n < 2 * max(m, 16)] if m <= 128 else []
    found = found or CLUSTERED + ALONE
    split = [s for c in found for s in splits_of(c, m, n, k)]
    return found + split


def splits_of(c: Config, m: int, n: int, k: int) -> list[Config]:
    """As QuACK's autotuner does: powers of two that lift the number of CTAs to the SMs'."""
    rows, columns = (n, m) if c.swap else (m, n)
    tiles = -(-rows // c.m) * -(-columns // c.n)
    # A few configurations are enough: where tiles are so few, which tile hardly matters.
    if tiles >= NUM_SMS or c.cluster != (1, 1):
        return []
    usual = [s for s in (2, 4, 8, 16) if tiles * s <= 4 * NUM_SMS and 2 * s <= k // 64][-2:]
    found = [replace(c, splits=s) for s in usual]
    return found + [replace(c, splits=s, separate=True) for s in usual[-1:]]


def variants(problem: Problem) -> list[Variant]:
    if problem.kind.columns:
        raise UnfitError("its operands are stored by rows here")
    if problem.kind.dtype == "int8":
        raise UnfitError("QuACK has no int8 product on Hopper")
    if problem.kind.scaling == "block":
        raise UnfitError("QuACK has no fp8 scales of 1x128 by 128x128 on Hopper")
    import quack.gemm  # noqa: F401 - a contestant that is not there says so once

    return [Variant(str(c), partial(make, problem, c)) for c in configs(problem)]


def warm(problems: Sequence[Problem]) -> list[Work]:
    from benchmarks.problems import problem as problem_of

    able = [p for p in problems if p.kind.dtype != "int8" and p.kind.scaling != "block"]
    wanted = dict.fromkeys((p.kind, c) for p in able for c in configs(p))
    small = {kind: problem_of(Contest("warm", kind, WARM_SHAPE)) for kind, _ in wanted}
    return [partial(run_once, small[kind], config) for kind, config in wanted]


def run_once(problem: Problem, config: Config, report: Report) -> None:
    import torch

    report(f"quack {problem.kind.name} {config}")
    out = torch.empty(problem.shape, dtype=problem.dtype, device="cuda")
    make(problem, config)(*lay_out(*problem.operands(0)), out)
    torch.cuda.synchronize()


def lay_out(*operands: Any) -> tuple[Any, ...]:
    """One scale for both operands; vectors with a batch axis."""
    if len(operands) == 2:
        return operands
    a, b, p, q = operands
    if p.numel() == 1:
        return a, b, p * q
    return (a, b, p[None], q) if q.dim() == 2 else (a, b, p[None], q[None])


@cache
def gemm_config(c: Config) -> Any:
    """The same object each time: QuACK finds what it has resolved by identity."""
    from quack.gemm_config import GemmConfig

    return GemmConfig(
        tile_m=c.m,
        tile_n=c.n,
        pingpong=c.pingpong,
        cluster_m=c.cluster[0],
        cluster_n=c.cluster[1],
        is_dynamic_persistent=False,
        device_capacity=9,
    )


def make(problem: Problem, c: Config) -> Call:
    if problem.kind.epilogue:
        from benchmarks.peers.quack_epilogues import bias_gelu_residual

        return lambda a, b, bias, residual, out: bias_gelu_residual(
            a, b.T, residual, out={"D": out}, config=gemm_config(c), tuned=False, bias=bias
        )
    if problem.kind.scaling == "row":
        from benchmarks.peers.quack_epilogues import rows_scaled

        return lambda a, b, p, q, out: rows_scaled(
            a, b.T, out={"D": out}, config=gemm_config(c), tuned=False, a_scale=p, b_scale=q
        )
    if problem.kind.scaling == "tensor":
        return lambda a, b, alpha, out: plain(c, a, b, out, alpha)
    return lambda a, b, out: plain(c, a, b, out, 1.0)


def plain(c: Config, a: Any, b: Any, out: Any, alpha: Any) -> None:
    from quack.gemm import gemm
    from quack.gemm_config import SplitKMode

    if c.swap:
        a, b, out = b, a, out.T
    if c.splits > 1:
        a, b, out = a[None], b[None], out[None]
    gemm(
        a,
        b,
        out,
        None,
        None,
        c.m,
        c.n,
        *c.cluster,
        pingpong=c.pingpong,
        alpha=alpha,
        split_k=c.splits,
        split_k_mode=SplitKMode.SEPARATE if c.separate else SplitKMode.SERIAL,
    )
