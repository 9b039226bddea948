"""Triton: its persistent product in a handful of configurations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from benchmarks.contest import Call, Contestant, UnfitError, Variant, Work
from benchmarks.problems import Problem
from benchmarks.suites import Contest
from benchmarks.watchdog import Report

GROUP = 8
WARM_SHAPE = (256, 512, 512)


@dataclass(frozen=True)
class Config:
    m: int
    n: int
    k: int  # bytes
    stages: int
    warps: int
    flatten: bool = True
    halves: bool = False
    """The output is stored in two halves, through half the shared memory."""

    def __str__(self) -> str:
        shown = f"{self.m}x{self.n}x{self.k}B stages {self.stages} warps {self.warps}"
        return shown + " nested" * (not self.flatten) + " halves" * self.halves


CONFIGS = [
    Config(128, 256, 128, 3, 8),
    Config(128, 256, 128, 4, 8, halves=True),
    Config(128, 256, 128, 3, 8, halves=True),
    Config(128, 256, 128, 3, 8, flatten=False),
    Config(128, 256, 128, 4, 8, flatten=False, halves=True),
    Config(256, 128, 128, 4, 8, halves=True),
    Config(128, 128, 128, 5, 8),
    Config(128, 128, 128, 5, 4),
    Config(64, 256, 128, 4, 4),
]
FEW_ROWS = [
    Config(64, 128, 128, 6, 4),
    Config(64, 64, 256, 4, 4),
    Config(64, 256, 128, 4, 4),
    Config(128, 128, 128, 5, 4),
]


def contestants() -> list[Contestant]:
    return [Contestant("triton", variants, warm)]


def configs(problem: Problem) -> list[Config]:
    m, _, _ = problem.size
    if problem.kind.dtype == "int8":  # outputs of 4 bytes
        smaller = [replace(c, halves=True, stages=3) for c in CONFIGS if c.flatten]
        return list(dict.fromkeys(smaller))
    return [*(FEW_ROWS if m <= 128 else CONFIGS)]


def variants(problem: Problem) -> list[Variant]:
    if problem.kind.columns:
        raise UnfitError("its operands are stored by rows here")
    if problem.size[0] == 256 and problem.size[2] > 32768:
        raise UnfitError("no split-K here")
    import triton  # noqa: F401 - a contestant that is not there says so once

    return [Variant(str(c), partial(make, problem, c)) for c in configs(problem)]


def warm(problems: Sequence[Problem]) -> list[Work]:
    """One unit a kernel that will be needed: they are the same for all shapes."""
    from benchmarks.problems import problem as problem_of

    wanted = dict.fromkeys((p.kind, c) for p in problems for c in configs(p))
    small = {kind: problem_of(Contest("warm", kind, WARM_SHAPE)) for kind, _ in wanted}
    return [partial(run_once, small[kind], config) for kind, config in wanted]


def run_once(problem: Problem, config: Config, report: Report) -> None:
    import torch

    report(f"triton {problem.kind.name} {config}")
    out = torch.empty(problem.shape, dtype=problem.dtype, device="cuda")
    make(problem, config)(*problem.operands(0), out)
    torch.cuda.synchronize()


@cache
def num_sms() -> int:
    import torch

    return torch.cuda.get_device_properties(0).multi_processor_count


def make(problem: Problem, config: Config) -> Call:
    import triton
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor

    from benchmarks.peers.triton_kernels import gemm

    m, n, k = problem.size
    kind = problem.kind
    step = config.k // (2 if kind.dtype == "bf16" else 1)
    tiles = triton.cdiv(m, config.m) * triton.cdiv(n, config.n)

    def call(a: Any, b: Any, *more: Any) -> None:
        *held, out = more
        p, q = held or (a, a)  # unused then
        gemm[(min(num_sms(), tiles),)](
            TensorDescriptor.from_tensor(a, [config.m, step]),
            TensorDescriptor.from_tensor(b, [config.n, step]),
            TensorDescriptor.from_tensor(out, [config.m, config.n // (1 + config.halves)]),
            m,
            n,
            k,
            p,
            q,
            BM=config.m,
            BN=config.n,
            BK=step,
            GROUP=GROUP,
            NUM_SMS=num_sms(),
            SCALING=kind.scaling,
            EPILOGUE=kind.epilogue,
            PROMOTE=kind.dtype == "fp8" and not kind.fast,
            ACC=tl.int32 if kind.dtype == "int8" else tl.float32,
            FLATTEN=config.flatten,
            HALVES=config.halves,
            num_warps=config.warps,
            num_stages=config.stages,
        )

    return call
