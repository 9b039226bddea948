"""Operands that a partition of threads makes in SMEM, `Schedule(decode="shared")`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tests.chained_kernels
from tests.case_data import check, expected, inputs
from tests.case_table import CASES, Case
from wsdsl import Schedule

assert tests.chained_kernels
KEPT: dict[str, Case] = {"widened": CASES["widened"]}


def kept(name: str, text: str, **sizes: int) -> Any:
    def keep(expected: Any) -> Any:
        KEPT[name] = Case(text, expected, sizes)
        return expected

    return keep


@kept(
    "scaled",
    """
@kernel
def scaled(X: f16[M, K], W: i8[N, K], s: f16[N], t: f16[K], Y: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[m, k] @ (cast(W[n, k], f16) * s[n] + t[k])
        Y[m, n] = acc
""",
    M=72, N=136, K=112,
)  # fmt: skip
def _(X: Any, W: Any, s: Any, t: Any) -> Any:
    w = (W.astype(np.float16) * s.astype(np.float16)[:, None]).astype(np.float16)
    return {"Y": X @ (w + t.astype(np.float16)).astype(np.float64).T}


@kept(
    "both",
    """
@kernel
def both(A: i8[M, K], B: i8[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += cast(A[m, k], bf16) @ cast(B[n, k], bf16)
        C[m, n] = acc
""",
    M=72, N=136, K=112,
)  # fmt: skip
def _(A: Any, B: Any) -> Any:
    return {"C": A @ B.T}


@kept(
    "across",
    """
@kernel
def across(A: bf16[M, K], B: i8[K, N], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ (cast(B[k, n], bf16) + 1.0)
        C[m, n] = acc
""",
    M=72, N=136, K=104,
)  # fmt: skip
def _(A: Any, B: Any) -> Any:
    return {"C": A @ (B + 1)}


@kept(
    "eight_bits",
    """
@kernel
def eight_bits(A: f8e4m3[M, K], B: u8[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ cast(cast(B[n, k] & 7, f32) + 1.0, f8e4m3)
        C[m, n] = acc
""",
    M=72, N=136, K=112,
)  # fmt: skip
def _(A: Any, B: Any) -> Any:
    return {"C": A @ ((B.astype(int) & 7) + 1.0).T}


SCHEDULES = [
    Schedule(decode="shared"),
    Schedule(decode="shared", tile=dict(m=128, n=128), mode="cooperative", consumers=2, stages=1),
    Schedule(decode="shared", tile=dict(m=64, n=64), mode="pingpong", consumers=2),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("name", KEPT)
def test_right_and_proved(name: str, schedule: Schedule) -> None:
    case = KEPT[name]
    arrays = inputs(case)
    wanted = expected(case, arrays)
    compiled = case.kernel.compile(schedule=schedule)
    compiled.simulate(*arrays.values())
    check(case, arrays, wanted)
    assert compiled.certificate is not None
