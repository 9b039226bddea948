"""Split-K and stream-K: results in the simulator, and kernels that are rejected."""

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.kernels import CASES, Case, simulated
from wsdsl import ScheduleError, parse
from wsdsl.schedule import Schedule, Scheduler

SMALL = Schedule(tile=dict(m=64, n=32, k=32), consumers=1, stages=2)
SHARED = {
    "stream_k": Schedule(scheduler="stream_k"),
    "split_k": Schedule(scheduler="split_k", splits=3),
    "parallel": Schedule(scheduler="split_k", splits=3, reduction="parallel"),
}


def shared(name: str, **more: object) -> Schedule:
    own = SHARED[name]
    given = dict(scheduler=own.scheduler, splits=own.splits, reduction=own.reduction)
    return dataclasses.replace(SMALL, **(given | more))


def fused(A: Any, B: Any, bias: Any, scale: Any) -> dict[str, Any]:
    y = np.maximum(A @ B.T * scale[:, None] + bias, 0)
    return {"C": 2 * y, "D": y}


FUSED = Case(
    """
@kernel
def fused(A: bf16[M, K], B: bf16[N, K], bias: f32[N], scale: f32[M], C: bf16[M, N], D: f32[M, N]):
    for m, n in tiles(M, N):
        b = bias[n]
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        y = relu(acc * scale[m] + b)
        D[m, n] = y
        C[m, n] = y * 2.0
""",
    fused,
)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("kind", SHARED)
@pytest.mark.parametrize(
    "more",
    [
        dict(),
        dict(tile=dict(m=128, n=48, k=64), consumers=2, mode="cooperative"),
        dict(tile=dict(m=64, n=64, k=64), consumers=2, mode="pingpong"),
        dict(cluster=dict(n=2), swizzle=2, raster="m"),
    ],
)
@pytest.mark.parametrize("sizes", [(130, 72, 136), (70, 32, 8)])
def test_an_epilogue_of_ones_own(kind: str, more: dict[str, object], sizes) -> None:
    m, n, k = sizes
    if kind == "parallel":  # All pieces run at the same time, on 4 SMs.
        m, n = min(m, 60), 32
        more = more | (dict(splits=2) if "cluster" in more else {})
    simulated(FUSED, shared(kind, **more), seed=k, M=m, N=n, K=k)


@pytest.mark.parametrize("kind", SHARED)
def test_nothing_to_sum(kind: str) -> None:
    a, b = np.zeros((60, 0), ml_dtypes.bfloat16), np.zeros((32, 0), ml_dtypes.bfloat16)
    c = CASES["gemm"].kernel.simulate(a, b, schedule=shared(kind))
    assert c.shape == (60, 32)
    assert not c.any()


def test_what_is_no_sum() -> None:
    text = """
@kernel
def f(A: f32[M, K], C: f32[M]):
    for m in tiles(M):
        top = zeros(f32[m])
        for k in tiles(K):
            top = max(top, max(A[m, k], over=k))
        C[m] = top
"""
    with pytest.raises(ScheduleError, match="is not only added to"):
        parse(text).f.schedule(Schedule(scheduler="stream_k"))


def test_loops_that_are_not_alone() -> None:
    with pytest.raises(ScheduleError, match=r'(?s)1 sequential loop.*scheduler="persistent"'):
        CASES["two_loops"].kernel.schedule(Schedule(scheduler="split_k", splits=2))


@pytest.mark.parametrize("scheduler", ["grid", "persistent", "stream_k"])
def test_nothing_to_do(scheduler: Scheduler) -> None:
    kernel = CASES["gemm"].kernel
    a, b = np.zeros((0, 64), ml_dtypes.bfloat16), np.zeros((96, 64), ml_dtypes.bfloat16)
    c = np.zeros((0, 96), ml_dtypes.bfloat16)
    kernel.simulate(a, b, c, schedule=Schedule(scheduler=scheduler))


def test_whole_rows_in_slices() -> None:
    kernel, serial = CASES["quantised"].kernel, Schedule(scheduler="split_k", splits=2)
    with pytest.raises(ScheduleError, match="needs whole rows"):
        kernel.schedule(dataclasses.replace(serial, reduction="parallel"))
    assert kernel.schedule(serial).splits == 2


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        (Schedule(scheduler="split_k"), "needs Schedule.splits"),
        (Schedule(splits=4), "use scheduler"),
        (Schedule(scheduler="stream_k", splits=4), "use scheduler"),
        (Schedule(reduction="serial"), 'or "stream_k", not'),
        (Schedule(scheduler="stream_k", reduction="parallel"), "use scheduler"),
    ],
)
def test_fields_that_do_not_fit(schedule: Schedule, told: str) -> None:
    with pytest.raises(ScheduleError, match=told):
        CASES["gemm"].kernel.schedule(schedule)
