"""Several products in one sum, and dimensions that are taken whole."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from wsdsl import Schedule, parse

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

LOOP = """
@kernel
def f(A: T[M, K], B: T[N, K], X: T[M, K], Y: T[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            BODY
        C[m, n] = acc
"""
WHOLE = """
@kernel
def f(A: T[M, D], B: T[N, D], X: T[M, E], Y: T[N, E], C: f32[M, N]):
    for m, n in tiles(M, N):
        C[m, n] = A[m, :] @ B[n, :] + X[m, :] @ Y[n, :]
"""
DTYPES: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f8e4m3": ml_dtypes.float8_e4m3fn}


def check(text: str, dtype: str, depths: tuple[int, int], schedule: Schedule | None) -> None:
    rng = np.random.default_rng(0)
    m, n = 200, 136
    a, b, x, y = (
        rng.integers(-2, 3, (rows, k)).astype(DTYPES[dtype]) for k in depths for rows in (m, n)
    )
    c = np.full((m, n), np.nan, np.float32)
    parse(text.replace("T[", f"{dtype}[")).f(a, b, x, y, c, schedule=schedule)
    a, b, x, y = (v.astype(np.float64) for v in (a, b, x, y))
    np.testing.assert_array_equal(c, a @ b.T + x @ y.T)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "body",
    [
        "acc += A[m, k] @ B[n, k] + X[m, k] @ Y[n, k]",
        "acc += A[m, k] @ B[n, k]\n            acc += X[m, k] @ Y[n, k]",
    ],
)
@pytest.mark.parametrize(
    "schedule",
    [None, Schedule(tile=dict(m=64, n=64, k=128), consumers=1), Schedule(mode="pingpong")],
    ids=repr,
)
def test_two_products_in_a_loop(dtype: str, body: str, schedule: Schedule | None) -> None:
    check(LOOP.replace("BODY", body), dtype, (1040, 1040), schedule)


@pytest.mark.parametrize("dtype", DTYPES)
def test_two_dimensions_taken_whole(dtype: str) -> None:
    check(WHOLE, dtype, (64, 128), None)
