"""Rows of products that the CTAs of a cluster reduce together."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.lowering.row_kernels import check
from wsdsl import Schedule, parse
from wsdsl.diagnostics import CompileError, ProofError, ScheduleError
from wsdsl.ir.hardware.swizzle import SMEM_ALIGN
from wsdsl.ir.op import Kernel, Op
from wsdsl.ir.ops import MbarrierArriveExpectTx, ReducePartials, StorePartials
from wsdsl.ir.rewriter import rewrite
from wsdsl.lowering.spread_rows import with_more_ctas
from wsdsl.prover.prove import prove

KERNELS = parse("""
@kernel
def normed(X: bf16[M, K], W: bf16[N, K], G: bf16[N], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[m, k] @ W[n, k]
        scale = rsqrt(sum(acc * acc, over=n) / cast(N, f32) + 1e-6)
        Y[m, n] = acc * scale * G[n]

@kernel
def probabilities(X: bf16[M, K], W: bf16[N, K], Y: f32[M, N], most: f32[M]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[m, k] @ W[n, k]
        top = max(acc, over=n)
        e = exp(acc - top)
        Y[m, n] = e / sum(e, over=n)
        most[m] = top

@kernel
def shares(X: bf16[M, K], W: bf16[N, K], Y: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[m, k] @ W[n, k]
        Y[m, n] = cumsum(acc, over=n) / sum(acc, over=n)

@kernel
def counted(X: bf16[M, K], W: bf16[N, K], Y: f32[M, N], S: f32[M]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[m, k] @ W[n, k]
        total = sum(acc, over=n)
        Y[m, n] = acc / total
        S[m] += total * total
""")
SCHEDULES = {
    "chosen": None,
    "cooperative": Schedule(tile=dict(m=128), consumers=2, mode="cooperative"),
    "tall": Schedule(tile=dict(m=256), consumers=2, mode="cooperative", cluster=dict(n=4)),
    "eight": Schedule(cluster=dict(n=8), consumers=1, multicast=False),
    "narrow tiles": Schedule(tile=dict(n=128)),
    "columns shared": Schedule(consumers=2, consumer_split="n", mode="cooperative"),
    "a grid": Schedule(tile=dict(n=128), scheduler="grid", multicast=False),
}
PAIR = Schedule(mode="cooperative", consumers=2)


def inputs(name: str, M: int, N: int, K: int) -> dict[str, Any]:
    random = np.random.default_rng(M + N + K)
    shapes = dict(X=(M, K), W=(N, K)) | (dict(G=(N,)) if name == "normed" else {})
    found = {key: random.standard_normal(shape) * 0.3 for key, shape in shapes.items()}
    return {key: held.astype(ml_dtypes.bfloat16) for key, held in found.items()}


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("name", "schedule"),
    [
        *(("normed", schedule) for schedule in SCHEDULES),
        *(("probabilities", schedule) for schedule in ("eight", "columns shared")),
    ],
)
def test_results_are_those_of_one_tile(name: str, schedule: str) -> None:
    M, N, K = 140, 500, 80
    kernel, given = vars(KERNELS)[name], inputs(name, M, N, K)
    compiled = kernel.compile(SCHEDULES[schedule], M=M, N=N, K=K)
    assert any(isinstance(op, StorePartials) and op.ctas > 1 for op in compiled.scheduled.ops)
    check(kernel, compiled, given, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize(("N", "ctas"), [(256, 1), (257, 2), (1000, 4), (2048, 8)])
def test_a_cluster_is_as_large_as_it_must_be(N: int, ctas: int) -> None:
    """And what the plan says of SMEM holds."""
    compiled = KERNELS.normed._compile(None, dict(M=4096, N=N, K=512), ())
    assert (compiled.schedule.cluster or {}).get("n", 1) == ctas
    if ctas > 1:
        assert compiled.plan.smem_bytes == compiled.signature.smem_bytes


@pytest.mark.parametrize("schedule", ["eight", "columns shared"])
def test_what_goes_together_has_room(schedule: str) -> None:
    compiled = KERNELS.probabilities._compile(SCHEDULES[schedule], dict(M=512, N=1000, K=512), ())
    assert "max, sum along n, at once" in str(compiled.plan)
    assert 0 <= compiled.plan.smem_bytes - compiled.signature.smem_bytes < SMEM_ALIGN


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", ["cooperative", "pingpong"])
def test_proved(mode: Any) -> None:
    schedule = Schedule(mode=mode, consumers=2)
    prove(KERNELS.normed.compile(schedule, M=4096, N=512, K=512).scheduled)


def test_fewer_columns_where_registers_would_spill() -> None:
    """More CTAs have fewer; of the most of them two consumers share what each has."""
    assert KERNELS.probabilities.compile(M=4096, N=256, K=512).schedule.cluster == {"n": 2}
    tile = replace(KERNELS.probabilities.tile_ir, sizes=(("N", 2048),))
    (last,) = with_more_ctas(tile, Schedule(cluster=dict(n=8)), Schedule())
    assert (last.cluster, last.share, last.consumers) == ({"n": 8}, "n", 2)


def pair() -> Kernel:
    return KERNELS.normed.compile(PAIR, M=4096, N=512, K=512).scheduled


def exchange(kernel: Kernel) -> StorePartials:
    return next(op for op in kernel.ops if isinstance(op, StorePartials))


def changed(kernel: Kernel, kind: type[Op], **changes: Any) -> Kernel:
    """With other attributes of the ops of a kind that belong to the exchange."""
    sent = exchange(kernel)

    def change(op: Op) -> tuple[Op]:
        own = isinstance(op, kind) and getattr(op, "barriers", sent.barriers) == sent.barriers
        return (replace(op, **changes) if own else op,)

    return replace(kernel, body=rewrite(kernel.body, change))


def test_rows_of_two_consumers_are_apart() -> None:
    made = changed(changed(pair(), StorePartials, each=0), ReducePartials, each=0)
    with pytest.raises(ProofError, match="before an earlier write is complete"):
        prove(made)


@pytest.mark.parametrize("bytes", [512, 2048])
def test_bytes_that_do_not_come_are_found(bytes: int) -> None:
    made = pair()
    assert exchange(made).ctas == 2
    with pytest.raises(ProofError):
        prove(changed(made, MbarrierArriveExpectTx, tx_bytes=bytes))


@pytest.mark.parametrize(
    ("name", "N", "schedule", "told"),
    [
        ("normed", 2049, None, "one tile has 0 to 2048"),
        ("counted", 512, None, "one tile has 0 to 256"),
        ("shares", 512, None, "one tile has 0 to 256"),
        ("normed", 512, Schedule(cluster=dict(m=2, n=2)), "cannot split other axes"),
        ("normed", 512, Schedule(scheduler="stream_k", cluster=dict(n=2)), "together, which"),
        ("normed", 2048, Schedule(cluster=dict(n=4)), "is no multiple|up to 256"),
        ("normed", 512, Schedule(tile=dict(n=128), cluster=dict(n=2)), "has n=128"),
    ],
)
def test_what_a_cluster_can_not_hold_is_refused(
    name: str, N: int, schedule: Schedule | None, told: str
) -> None:
    with pytest.raises((CompileError, ScheduleError), match=told):
        vars(KERNELS)[name].compile(schedule, M=4096, N=N, K=512)
