"""The kernels whose mutants are judged, each under schedules of its own, and in which runs."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np

from tests.case_table import Case
from tests.decoded_kernels import DECODED
from tests.in_place_kernels import text
from tests.kernels import CASES, inputs
from tests.prover.random_schedules import wide_schedule
from tests.scaled_kernels import SCALED
from wsdsl import Schedule
from wsdsl.diagnostics import WsdslError
from wsdsl.ir.op import Kernel
from wsdsl.ir.types import Tensor
from wsdsl.lazy import cached_property
from wsdsl.simulator.interleaving_script import Agents
from wsdsl.simulator.simulation import simulate

HEAD = "A: bf16[M, K], B: bf16[N, K], S: i32[E], W: f32[M, E], C: f32[M, N]"
# The size of E is fixed, as W is taken whole: loops over it have constant bounds.
IF_SUMMED = f"""
@kernel
def if_summed({HEAD}):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        s = 0
        for e in each(E):
            s = s + S[e]
        if s > 4:
            for k in tiles(K):
                acc += A[m, k] @ B[n, k]
        C[m, n] = acc * sum(W[m, :], over=E)
"""
IF_IN_A_LOOP = f"""
@kernel
def if_in_a_loop({HEAD}):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for e in each(E):
            if S[e] > 1:
                for k in tiles(K):
                    acc += A[m, k] @ B[n, k]
        C[m, n] = acc * sum(W[m, :], over=E)
"""


def _case(text: str, **sizes: int) -> Case:
    return Case(text, lambda **_: {}, sizes)


KERNELS: dict[str, Case] = {
    **{name: CASES[name] for name in (
        "gemm", "mn_major", "epilogue", "two_products", "held_operand", "nested",
        "product_f8e4m3", "two_loops", "batched", "reduce_into", "bias_first",
    )},
    # With rows of scales that TMA can take.
    "block_scaled": replace(CASES["block_scaled"], sizes=dict(M=72, N=200, K=272, NB=2, KB=4)),
    "if_summed": _case(IF_SUMMED, E=3),
    "if_in_a_loop": _case(IF_IN_A_LOOP, E=2),
    "in_place": _case(text("loop", "f32"), E=3),
    "in_place_product": _case(text("product", "bf16"), E=2),
    "in_place_stored_twice": _case(text("stored twice", "bf16"), E=2),
}  # fmt: skip
TENSOR = dict[str, Any](arch="sm_100a", tile=dict(m=128, n=64), stages=2)
SMALL = dict[str, Any](tile=dict(m=64, n=64), stages=2)
FEATURES: dict[str, tuple[Case, dict[str, Any]]] = {
    "tensor memory": (CASES["gemm"], TENSOR),
    "tensor memory, 64 rows": (CASES["epilogue"], TENSOR | dict(tile=dict(m=64, n=32))),
    "pair": (CASES["gemm"], TENSOR | dict(cta_group=2)),
    "tensor cluster": (CASES["gemm"], TENSOR | dict(cluster=dict(m=2))),
    "dynamic": (CASES["gemm"], TENSOR | dict(scheduler="dynamic")),
    "dynamic cluster": (CASES["gemm"], TENSOR | dict(scheduler="dynamic", cluster=dict(m=2))),
    "attention, P in tensor memory": (CASES["attention"], TENSOR | dict(operand_transform="tmem")),
    "attention, P in shared memory": (CASES["attention"], TENSOR | dict(operand_transform="smem")),
    "attention, P in registers": (CASES["attention"], SMALL),
    "scales stored": (replace(SCALED["mx"], sizes=dict(M=140, N=72, K=512, KB=16)), TENSOR),
    "scales copied": (SCALED["mx_atoms"], TENSOR),
    "quantized, registers": (DECODED["scaled"], SMALL | dict(operand_transform="registers")),
    "quantized, shared memory": (DECODED["scaled"], SMALL | dict(operand_transform="smem")),
    "quantized, tensor memory": (DECODED["scaled"], TENSOR),
    "stream-K": (CASES["gemm"], SMALL | dict(mode="cooperative", scheduler="stream_k")),
    "split-K": (
        CASES["gemm"], SMALL | dict(scheduler="split_k", splits=2, reduction="parallel"),
    ),
    "sums of a cluster": (CASES["gemm"], SMALL | dict(consumers=1, cluster=dict(k=2))),
    "ping-pong": (CASES["gemm"], SMALL | dict(mode="pingpong")),
    "multicast": (CASES["gemm"], SMALL | dict(consumers=1, cluster=dict(m=2))),
}  # fmt: skip
"""Kernels of each feature of the hardware and of the schedule, each under one schedule."""
SCHEDULES = 5
FREE, STEP, FEWEST, MOST = ("M", "N", "K", "L"), 16, 5, 20
"""Dimensions that take any size, in steps that TMA can take: mostly several tiles, and a part."""
ORDERS: tuple[Agents, ...] = ("random", "lazy")
CLOSE = 2.0**-6


@dataclass(frozen=True, eq=False)
class Trial:
    """Arguments on which a kernel is run by so many SMs, or as many as its pieces need."""

    arrays: dict[str, Any]
    num_sms: int | None
    seed: int

    def run(self, kernel: Kernel, order: int = 0) -> dict[str, Any]:
        """What it leaves in its arguments, in one of ORDERS. Raises what the simulator finds."""
        held, seed = deepcopy(self.arrays), self.seed * len(ORDERS) + order
        with np.errstate(all="ignore"):
            simulate(kernel, held, seed=seed, num_sms=self.num_sms, agents=ORDERS[order])
        return {k: v for k, v in held.items() if isinstance(v, np.ndarray)}


@dataclass(frozen=True, eq=False)
class Victim:
    """A kernel under a schedule; `wanted` is what it leaves itself, in each trial."""

    name: str
    kernel: Kernel
    trials: tuple[Trial, ...]

    @cached_property
    def wanted(self) -> list[dict[str, Any]]:
        return [trial.run(self.kernel) for trial in self.trials]

    def __str__(self) -> str:
        return f"{self.name} {self.kernel.schedule!r}"


def victim(name: str, number: int, seed: int) -> Victim:
    """The kernel under one of its schedules, which depends on nothing but these three."""
    rng, params = Random(f"{name} {number} {seed}"), KERNELS[name].kernel.tile_ir.params
    names = tuple(p.name for p in params if isinstance(p.type, Tensor))
    while True:
        threads = names if rng.random() < 0.3 else ()
        try:
            return scheduled(name, wide_schedule(rng), threads, rng)
        except WsdslError:
            continue


def featured(name: str) -> Victim:
    """One of FEATURES, at the sizes of its case."""
    case, words = FEATURES[name]
    sizes = dict(case.sizes)
    known = {"D": sizes["D"]} if "D" in sizes else {}
    kernel = case.kernel._compile(Schedule(**words), known, ()).scheduled
    pieces = kernel.schedule is not None and kernel.schedule.cuts_tiles
    trials = (
        Trial(inputs(case, number, **sizes), None if pieces else 1 + number, number)
        for number in range(2)
    )
    return Victim(name, kernel, tuple(trials))


def scheduled(name: str, schedule: Schedule, threads: tuple[str, ...], rng: Random) -> Victim:
    """Under this one; `threads` are the tensors that TMA can not load."""
    case = KERNELS[name]
    sizes = {d: 136 for d in case.kernel.dims if d in FREE} | dict(case.sizes)
    kernel = case.kernel._compile(schedule, sizes, threads).scheduled
    return Victim(name, kernel, tuple(_trials(case, kernel, sizes, rng)))


def _trials(case: Case, kernel: Kernel, sizes: dict[str, int], rng: Random) -> Iterator[Trial]:
    pieces = kernel.schedule is not None and kernel.schedule.cuts_tiles
    for number in range(2):
        free = [d for d in sizes if d in FREE and d not in dict(kernel.sizes)]
        drawn = {d: STEP * rng.randint(FEWEST, MOST) for d in free} if number else {}
        given = sizes | drawn | dict(kernel.sizes)
        yield Trial(inputs(case, number, **given), None if pieces else 1 + number, number)


def same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether the results are the same, but for the order in which floats were added."""
    return all(_close(np.asarray(found[k]), np.asarray(wanted[k])) for k in wanted)


def _close(found: Any, wanted: Any) -> bool:
    if not np.issubdtype(wanted.dtype, np.integer):
        found, wanted = found.astype(np.float64), wanted.astype(np.float64)
        finite = wanted[np.isfinite(wanted)]
        scale = float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
        return bool(np.allclose(found, wanted, CLOSE, CLOSE * scale, equal_nan=True))
    return bool((found == wanted).all())
