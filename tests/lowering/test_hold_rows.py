"""Rows that are held in registers: by lanes, warps, warpgroups, and the CTAs of a cluster."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.case_data import DTYPES
from tests.lowering.row_kernels import KERNELS, check
from tests.lowering.test_column_sums import changed
from wsdsl import Schedule, parse
from wsdsl.diagnostics import ProofError, ScheduleError, VerifyError
from wsdsl.ir.op import Kernel, Op
from wsdsl.ir.ops import (
    LoadGlobal,
    MbarrierWait,
    NamedBarrierSync,
    ReducePartials,
    StorePartials,
    SyncCluster,
)
from wsdsl.ir.types import Tensor
from wsdsl.prover.prove import prove
from wsdsl.simulator.simulation import simulate
from wsdsl.simulator.simulation_error import SimulationError

SHAPES = {
    "rmsnorm": [(70, 64), (5, 1000), (3, 4096), (2, 20000), (1, 140000)],
    "softmax": [(19, 72), (2, 12000), (1, 70000)],
    "in_one_tile": [(9, 300 - 4), (2, 9000)],
    "whole": [(9, 800), (2, 33000)],
    "by_each": [(3, 1024), (2, 17000)],
    "rescaled": [(9, 260), (2, 20000)],
}


def inputs(name: str, M: int, N: int) -> dict[str, Any]:
    random, found = np.random.default_rng(M + N), dict[str, Any]()
    sizes = dict(M=M, N=N, B=2)
    for p in vars(KERNELS)[name].params:
        assert isinstance(p.type, Tensor)
        if p.name in ("X", "W"):
            shape = [sizes[d] for d in p.type.dims if isinstance(d, str)]
            held = random.standard_normal(shape).astype(np.float32) + 0.25
            found[p.name] = held.astype(DTYPES[p.type.dtype.name])
    return found


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("name", "M", "N"), [(n, *s) for n, each in SHAPES.items() for s in each])
def test_results_are_those_of_the_reference(name: str, M: int, N: int) -> None:
    kernel, given = vars(KERNELS)[name], inputs(name, M, N)
    sizes = {d: dict(M=M, N=N, B=2)[d] for d in kernel.dims}
    compiled = kernel.compile(**sizes)
    assert not any(map(_walks_rows, compiled.scheduled.ops)), "a loop along rows is left"
    check(kernel, compiled, given)


def _walks_rows(op: Op) -> bool:
    return type(op).__name__ == "ForRange"


def scheduled(name: str, schedule: Schedule, **sizes: int) -> Kernel:
    return vars(KERNELS)[name].compile(schedule, **sizes).scheduled


TEAMS = {
    "lanes": Schedule(tile=dict(m=8, n=1024)),
    "two warps": Schedule(tile=dict(m=2, n=1024)),
    "four warps": Schedule(tile=dict(m=1, n=1024)),
    "two warpgroups": Schedule(tile=dict(m=1, n=2048), consumers=2, consumer_split="n"),
    "a cluster": Schedule(tile=dict(m=1, n=1024), cluster=dict(n=2)),
    "warpgroups of a cluster": Schedule(
        tile=dict(m=2, n=1024), consumers=2, consumer_split="n", cluster=dict(n=2)
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("team", TEAMS)
def test_each_row_is_read_once(team: str) -> None:
    compiled = KERNELS.rmsnorm.compile(TEAMS[team], M=9, N=1000)
    loads = [op for op in compiled.scheduled.of(LoadGlobal) if op.tensor.name == "X"]
    assert len({op.index for op in loads}) == len(loads)
    tile, consumers = TEAMS[team].tile or {}, TEAMS[team].consumers or 1
    assert sum(op.result.as_fragment.columns for op in loads) * consumers == tile["n"]
    check(KERNELS.rmsnorm, compiled, inputs("rmsnorm", 9, 1000))


@pytest.mark.parametrize(("name", "ctas"), [("rmsnorm", 5), ("layernorm", 5)])
def test_rows_take_the_registers_that_they_were_loaded_to(name: str, ctas: int) -> None:
    """What they are converted to does not stay, so that so many CTAs have registers for them."""
    made = vars(KERNELS)[name].compile(M=64, N=100000)
    assert made.schedule.ctas_per_sm == ctas and not made.resources.spill_store_bytes


def test_the_last_ctas_of_a_cluster_may_have_no_columns() -> None:
    """Three whole tiles, of four CTAs."""
    schedule = Schedule(tile=dict(m=1, n=1024), cluster=dict(n=4))
    given = dict(X=np.random.default_rng(1).standard_normal((2, 3072)).astype(np.float32) - 3.0)
    compiled = KERNELS.softmax.compile(schedule, M=2, N=3072)
    check(KERNELS.softmax, compiled, given, rtol=1e-4, atol=0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("N", [5, 24, 96])
@pytest.mark.parametrize("consumers", [2, 4])
def test_narrow_tiles_are_shared(consumers: int, N: int) -> None:
    """The last consumers may have no columns that are within."""
    tile = dict(m=64, n=max(32, N) // 32 * 32 * (consumers // 2))
    schedule = Schedule(tile=tile, consumers=consumers, consumer_split="n")
    compiled = KERNELS.rmsnorm.compile(M=70, N=N, schedule=schedule)
    check(KERNELS.rmsnorm, compiled, inputs("rmsnorm", 70, N))


def without(kernel: Kernel, kind: type[Op], number: int = 0) -> Kernel:
    return changed(kernel, kind, lambda op: (), number)


@pytest.mark.parametrize(
    ("team", "kind"),
    [
        ("four warps", NamedBarrierSync),
        ("two warpgroups", NamedBarrierSync),
        ("a cluster", MbarrierWait),
    ],
)
def test_who_does_not_wait_for_the_others_is_found(team: str, kind: type[Op]) -> None:
    wrong = without(scheduled("rmsnorm", TEAMS[team], M=9, N=1000), kind)
    with pytest.raises(ProofError, match=r"before it is written|no op has written"):
        prove(wrong)
    with pytest.raises(SimulationError):
        simulate(wrong, inputs("rmsnorm", 9, 1000) | {"Y": np.zeros((9, 1000), ml_dtypes.bfloat16)})


def test_a_cluster_meets_before_its_ctas_send() -> None:
    made = scheduled("rmsnorm", TEAMS["a cluster"], M=9, N=1000)
    kinds = [type(op) for op in made.ops]
    assert kinds.index(LoadGlobal) < kinds.index(SyncCluster) < kinds.index(StorePartials)
    with pytest.raises(VerifyError, match="all threads must synchronize"):
        prove(without(made, SyncCluster))


def test_parts_that_overlap_are_found() -> None:
    made = scheduled("rmsnorm", TEAMS["a cluster"], M=9, N=1000)
    with pytest.raises(ProofError):
        prove(changed(made, StorePartials, lambda op: (replace(op, part=None),)))


def test_a_reduction_in_a_loop_may_be_run_again() -> None:
    """Where a loop is left around it, buffers are written again once all have read them."""
    made = scheduled(
        "rmsnorm", Schedule(tile=dict(m=1, n=1024), scheduler="persistent"), M=9, N=1000
    )
    meets = sum(isinstance(op, NamedBarrierSync) for op in made.ops)
    assert meets == 2
    assert sum(isinstance(op, ReducePartials) for op in made.ops) == 1
    with pytest.raises(ProofError, match="may overwrite"):
        prove(without(made, NamedBarrierSync, 1))


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        (Schedule(tile=dict(m=1, n=1000)), "must be a multiple of 256"),
        (Schedule(tile=dict(m=64, n=1024)), "must be 256 or less"),
        (Schedule(tile=dict(m=1, n=512), cluster=dict(m=2, n=2)), "cannot split other axes"),
    ],
)
def test_tiles_that_threads_can_not_hold_are_refused(schedule: Schedule, told: str) -> None:
    with pytest.raises(ScheduleError, match=told):
        KERNELS.rmsnorm.compile(schedule, M=100, N=1000)


TWO_LINES = """
@kernel
def two(X: f32[N], Y: f32[B], W: f32[B, K]):
    for b in each(B):
        most = -inf
        for n in tiles(N):
            most = max(most, max(X[n], over=n))
        for k in tiles(K):
            Y[b] += sum(W[b, k] + most, over=k)
"""


@pytest.mark.parametrize(
    ("tile", "cluster", "told"),
    [
        (dict(n=16), dict(k=2), "cluster names `k`, which is not a parallel"),
        (dict(k=256), dict(n=2, k=2), "cannot split other axes"),
        (dict(), dict(k=2), None),
    ],
)
def test_a_cluster_shares_one_line_if_tiles_hold_all(
    tile: dict[str, int], cluster: dict[str, int], told: str | None
) -> None:
    kernel, schedule = parse(TWO_LINES).two, Schedule(tile=tile, cluster=cluster)
    x, y, w = np.arange(7.0), np.ones(2), np.arange(600.0).reshape(2, 300)
    if told:
        with pytest.raises(ScheduleError, match=told):
            kernel.compile(schedule, N=700, B=2, K=300)
        return
    y = kernel.simulate(*(a.astype(np.float32) for a in (x, y, w)), schedule=schedule)
    assert (y == 1 + w.sum(1) + 300 * 6).all()


OTHERS = parse("""
@kernel
def distribution(X: f32[M, N], Y: f32[M, N]):
    for m, n in tiles(M, N):
        x = X[m, n]
        Y[m, n] = cumsum(x, over=n) / sum(x, over=n)

@kernel
def running(X: bf16[M, N], S: f32[M], Y: f32[M, N]):
    for m in tiles(M):
        total = zeros(f32[m])
        for n in tiles(N):
            total += sum(cast(X[m, n], f32), over=n)
        total += S[m]
        for n in tiles(N):
            Y[m, n] = X[m, n] * total
        S[m] = total

@kernel
def of_tiles(X: f32[M, K], Y: f32[M, N]):
    for m, n in tiles(M, N):
        total, other = zeros(f32[m, n]), zeros(f32[m, n])
        for k in tiles(K):
            total += sum(X[m, k], over=k)
        Y[m, n] = total

@kernel
def alone(X: f32[K], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        total = 0.0
        for k in tiles(K):
            total += sum(X[k], over=k)
        Y[m, n] = total

@kernel
def of_blocks(X: bf16[M, N], Y: f32[M, N]):
    for m, n in tiles(M, N):
        x = cast(X[m, n], f32)
        Y[m, n] = x / max(abs(x), over=n, per=32) + sum(x, over=n)
""")


@pytest.mark.parametrize(
    ("name", "N", "are_shared"), [("distribution", 96, False), ("of_blocks", 2048, True)]
)
def test_what_is_in_front_of_an_element_is_in_its_warp(name: str, N: int, are_shared: bool) -> None:
    kernel = vars(OTHERS)[name]
    x = np.random.default_rng(N).random((3, N)).astype(DTYPES[str(kernel.params[0].type.dtype)])
    compiled = kernel.compile(M=3, N=N)
    assert any(isinstance(op, StorePartials) for op in compiled.scheduled.ops) == are_shared
    check(kernel, compiled, dict(X=x), rtol=1e-5, atol=0)


def test_ctas_that_share_a_row_do_not_read_what_each_of_them_stores() -> None:
    """One would find what another has added to already."""
    kernel = OTHERS.running
    with pytest.raises(ScheduleError, match="each of its CTAs would load and store `S`"):
        kernel.compile(Schedule(tile=dict(m=1, n=16384), cluster=dict(n=2)), M=3, N=30000)
    compiled = kernel.compile(M=3, N=30000)
    assert not compiled.schedule.cluster and not any(map(_walks_rows, compiled.scheduled.ops))
    x = np.random.default_rng(5).random((3, 30000)).astype(DTYPES["bf16"])
    before = np.arange(3, dtype=np.float32)
    made, _ = compiled.simulate(X=x, S=before.copy())
    np.testing.assert_allclose(made, before + x.astype(float).sum(1), rtol=1e-5)


def test_ctas_share_sums_of_tiles_alone_where_no_rows_are_held() -> None:
    schedule = Schedule(tile=dict(m=64, n=64, k=32), cluster=dict(k=4), consumers=1)
    with pytest.raises(ScheduleError, match="several threads would have the same columns"):
        OTHERS.alone.compile(schedule, M=70, N=24, K=70)
    with pytest.raises(ScheduleError, match="not a 32-bit accumulator"):
        OTHERS.alone.compile(schedule, M=70, N=24, K=7000)
    x = np.random.default_rng(3).random((70, 90)).astype(np.float32)
    got = OTHERS.of_tiles.compile(schedule, M=70, N=24, K=90).simulate(
        X=x, Y=np.zeros((70, 24), np.float32)
    )
    np.testing.assert_allclose(got, np.repeat(x.sum(1, keepdims=True), 24, 1), rtol=1e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("K", [70, 7000, 60000])
def test_a_row_that_all_tiles_reduce(K: int) -> None:
    x = np.random.default_rng(K).random(K).astype(np.float32)
    compiled = OTHERS.alone.compile(M=70, N=24, K=K)
    got = compiled.simulate(X=x, Y=np.zeros((70, 24), DTYPES["bf16"]))
    np.testing.assert_allclose(np.asarray(got, np.float64), x.sum(), rtol=1e-2)


def test_consumers_have_whole_vectors_of_one_row() -> None:
    text = "@kernel\ndef f(X: f32[K], Y: f32[B]):\n    for b in each(B):\n        s = 0.0\n"
    text += "        for k in tiles(K):\n            s += sum(X[k], over=k)\n        Y[b] = s\n"
    with pytest.raises(ScheduleError, match="24 \\(8 per consumer\\)"):
        parse(text).f.compile(Schedule(tile=dict(k=16), consumers=3), K=16, B=1)


def test_a_cluster_shares_a_loop_beside_a_held_row() -> None:
    text = """@kernel
def f(X: f32[M, K], Z: f16[M, D], Y: f32[M, N], S: f32[M]):
    for m in tiles(M):
        for n in tiles(N):
            Y[m, n] = min(Z[m, :], over=D)
        top = full(f32[m], -inf)
        for k in tiles(0, K, of=K):
            top = max(top, max(X[m, k], over=k))
        S[m] = top
"""
    with pytest.raises(ScheduleError, match="1 sequential loop"):
        parse(text).f.compile(Schedule(tile=dict(k=32), cluster=dict(k=2)), M=17, K=5, N=8, D=8)
