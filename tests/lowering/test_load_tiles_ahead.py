"""Rows that are read once are walked by their CTA, and the next tile comes meanwhile; rows of
clusters likewise, the next row.
"""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.lowering.row_kernels import KERNELS, check
from wsdsl import Schedule, parse
from wsdsl.diagnostics import ProofError
from wsdsl.ir.op import Kernel, Op
from wsdsl.ir.ops import Advance, ForRange, StorePartials, SyncWarp
from wsdsl.ir.rewriter import rewrite
from wsdsl.prover.prove import prove

TEXT = """
@kernel
def logsumexp(X: bf16[M, N], Y: f32[M]):
    for m in tiles(M):
        most, total = full(f32[m], -inf), zeros(f32[m])
        for n in tiles(N):
            x = cast(X[m, n], f32)
            new = max(most, max(x, over=n))
            total = total * exp(most - new) + sum(exp(x - new), over=n)
            most = new
        Y[m] = most + log(total)

@kernel
def halves(X: bf16[M, N], Z: bf16[H, N], Y: f32[M]):
    for m in tiles(M):
        total = zeros(f32[m])
        for n in tiles(N):
            total += sum(cast(X[m, n], f32) * cast(Z[index(m) // 2, n], f32), over=n)
        Y[m] = total

@kernel
def scaled(X: bf16[M, N], at: i32[M], W: f32[R], Y: f32[M]):
    for m in tiles(M):
        total = zeros(f32[m])
        for n in tiles(N):
            total += sum(cast(X[m, n], f32), over=n)
        Y[m] = total * W[at[m]]
"""
OWN = parse(TEXT)
CLUSTER = Schedule(tile=dict(m=1, n=1024), cluster=dict(n=2), scheduler="persistent", stages=2)


def inputs(M: int, N: int) -> Any:
    held = np.random.default_rng(M + N).standard_normal((M, N)).astype(np.float32)
    return held.astype(ml_dtypes.bfloat16)


def loops(kernel: Kernel) -> list[ForRange]:
    return [op for op in kernel.ops if isinstance(op, ForRange)]


def without(kernel: Kernel, kind: type[Op]) -> Kernel:
    return replace(kernel, body=rewrite(kernel.body, lambda op: () if type(op) is kind else (op,)))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("N", [30000, 24576, 10001])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_results_do_not_depend_on_stages(N: int, stages: int) -> None:
    schedule = Schedule(tile=dict(m=1, n=4096), stages=stages, scheduler="persistent")
    x, compiled = inputs(3, N), OWN.logsumexp.compile(schedule, M=3, N=N)
    wide = x.astype(np.float64)
    want = np.log(np.exp(wide).sum(1))
    np.testing.assert_allclose(compiled.simulate(X=x), want, rtol=1e-5)


def test_load_tiles_ahead_stages_when_rows_are_read_once() -> None:
    made = OWN.logsumexp.compile(M=2000, N=30000).scheduled
    assert made.schedule and made.schedule.stages == 2 and not made.schedule.cluster
    prove(made)


def test_few_rows_and_rows_that_are_read_again_are_held() -> None:
    few = OWN.logsumexp.compile(M=64, N=100000).scheduled.schedule
    again = KERNELS.rmsnorm.compile(M=4000, N=65536).scheduled.schedule
    short = OWN.logsumexp.compile(M=4000, N=4096).scheduled
    assert few and few.cluster and again and again.cluster and not loops(short)


SMALL = Schedule(tile=dict(m=1, n=2048), stages=2, scheduler="persistent")


def test_load_tiles_ahead_results_when_rows_are_chosen() -> None:
    given = dict(X=inputs(5, 5000), at=np.array([4, 3, 0, 1, 2], np.int32))
    given |= dict(W=np.arange(1, 6, dtype=np.float32))
    check(OWN.scaled, OWN.scaled.compile(SMALL, M=5, N=5000), given, rtol=1e-3, atol=0.1)


def test_load_tiles_ahead_results_when_index_is_computed() -> None:
    given = dict(X=inputs(5, 5000), Z=inputs(3, 5000))
    check(OWN.halves, OWN.halves.compile(SMALL, M=5, N=5000), given, rtol=1e-3, atol=0.1)


@pytest.mark.parametrize("name", ["rmsnorm", "softmax"])
def test_load_tiles_ahead_results_when_cluster_is_persistent(name: str) -> None:
    kernel = vars(KERNELS)[name]
    compiled = kernel.compile(CLUSTER, M=9, N=1500)
    prove(compiled.scheduled)
    given = dict(X=inputs(9, 1500).astype("f4") if name == "softmax" else inputs(9, 1500))
    given |= {} if name == "softmax" else dict(W=inputs(1, 1500)[0])
    check(kernel, compiled, given)


def test_who_sends_before_its_warp_has_read_is_found() -> None:
    """It is what says that a buffer is free."""
    made = KERNELS.rmsnorm.compile(CLUSTER, M=9, N=1500).scheduled
    with pytest.raises(ProofError, match="while it is still read"):
        prove(without(made, SyncWarp))


def test_one_buffer_is_too_few() -> None:
    made = KERNELS.rmsnorm.compile(CLUSTER, M=9, N=1500).scheduled

    def alone(op: Op) -> tuple[Op]:
        return (replace(op, num=1) if isinstance(op, Advance) else op,)

    assert any(isinstance(op, StorePartials) for op in made.ops)
    with pytest.raises(ProofError):
        prove(replace(made, body=rewrite(made.body, alone)))
