"""Products of computed operands: links of a chain, and who refuses what."""

from typing import Any

import numpy as np
import pytest

from tests.case_data import right_and_proved
from tests.case_table import Case, case
from tests.lowering.test_tensor_chains import OWN
from wsdsl import Schedule
from wsdsl.diagnostics import ScheduleError

KEPT: dict[str, Case] = {}


@case(KEPT, M=72, N=136, K=100)("""
def beyond_the_end(A: f16[M, K], B: f16[K, N], s: f16[K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            x = A[m, k]
            if s[0] > 0:
                x = x / abs(x)
            acc += (x + s[k]) @ B[k, n]
        C[m, n] = acc
""")
def beyond_the_end(A: Any, B: Any, s: Any) -> Any:
    x = np.sign(A) if s[0] > 0 else A
    return {"C": (x + s).astype(np.float16).astype(np.float64) @ B}


@case(KEPT, M=72, N=136, K=100, H=72)("""
def two_links(X: bf16[M, K], U: bf16[H, K], G: bf16[H, K], D: bf16[N, H], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for h in tiles(H):
            up, gate = zeros(f32[m, h]), zeros(f32[m, h])
            for k in tiles(K):
                up += X[m, k] @ U[h, k]
                gate += X[m, k] @ G[h, k]
            acc += cast(up * relu(gate), bf16) @ D[n, h]
        Y[m, n] = acc
""")
def two_links(X: Any, U: Any, G: Any, D: Any) -> Any:
    return {"Y": ((X @ U.T) * np.maximum(X @ G.T, 0)) @ D.T}


@case(KEPT, M=72, N=136, K=96, P=36)("""
def lies_another_way(A: f16[K, M], R: i8[P, K], B: f16[K, N], C: f32[M, N], D: f32[M, N]):
    for m, n in tiles(M, N):
        columns, gathered = zeros(f32[m, n]), zeros(f32[m, n])
        for k in tiles(K):
            columns += (A[k, m] + 1.0) @ B[k, n]
            gathered += cast(R[index(m) // 2, k], f16) @ B[k, n]
        C[m, n] = columns
        D[m, n] = gathered
""")
def lies_another_way(A: Any, R: Any, B: Any) -> Any:
    """Neither is read from a slot as the rows' elements along the sum."""
    return {"C": (A + 1).astype(np.float16).astype(np.float64).T @ B, "D": R.repeat(2, 0) @ B}


SCHEDULES = [
    Schedule(),
    Schedule(tile=dict(m=128, n=64), consumers=2, stages=1),
    Schedule(tile=dict(m=64, n=32), mode="pingpong", scheduler="grid"),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("name", KEPT)
def test_right_and_proved(name: str, schedule: Schedule) -> None:
    right_and_proved(KEPT[name], schedule)


def test_three_links_are_right_and_proved() -> None:
    schedule = Schedule(tile=dict(m=128), consumers=2, stages=1)
    right_and_proved(OWN["three_links"], schedule, D=64, E=64)


def test_whole_rows_are_computed() -> None:
    with pytest.raises(ScheduleError, match="needs whole rows"):
        KEPT["two_links"].kernel.compile(
            schedule=Schedule(tile=dict(m=64, n=128), consumers=2, consumer_split="n")
        )
