"""Stores at places that a tile holds: each piece has its own, and none beyond the tensors."""

import ml_dtypes
import numpy as np
import pytest

import wsdsl
from tests.corpus.texts import TEXTS
from wsdsl import Schedule
from wsdsl.prover.prove import prove
from wsdsl.simulator.simulation import simulate

SCATTERED = wsdsl.parse(TEXTS["scattered"][0]).scattered
SCHEDULES = {
    "a block of rows": Schedule(tile=dict(m=64, n=48), consumers=1),
    "two blocks of rows": Schedule(tile=dict(m=128, n=48), consumers=1),
    "shared rows": Schedule(tile=dict(m=128, n=80), consumers=2),
    "shared columns": Schedule(tile=dict(m=64, n=64), consumers=2, consumer_split="n"),
    "a cluster": Schedule(tile=dict(m=64, n=16), consumers=1, cluster=dict(m=2, n=2)),
    "columns ride M": Schedule(tile=dict(m=32, n=64), consumers=1, mma_m="n"),
    "parallel": Schedule(
        tile=dict(m=64, n=64), consumers=1, scheduler="split_k", splits=2, reduction="parallel"
    ),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("rows", [40, 128, 150])
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_element_has_its_place(name: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    arrays = {
        "A": rng.integers(-3, 4, (rows, 96)).astype(ml_dtypes.bfloat16),
        "B": rng.integers(-3, 4, (88, 96)).astype(ml_dtypes.bfloat16),
        "C": np.full((200, 88), -7, np.float32),
        "D": np.full((rows, 100), -7, np.float32),
        "rows": (rng.permutation(199)[:rows] + 1).astype(np.int32),
        "columns": (rng.permutation(99)[:88] + 1).astype(np.uint8),
    }
    wanted = {name: array.copy() for name, array in arrays.items()}
    SCATTERED.reference(*wanted.values())
    compiled = SCATTERED._compile(SCHEDULES[name], {}, ())
    simulate(compiled.scheduled, arrays, seed=1)
    assert (arrays["C"] == wanted["C"]).all() and (arrays["D"] == wanted["D"]).all()
    assert compiled.certificate and compiled.ptx


def test_places_of_columns_that_come_in_pieces() -> None:
    text = """@kernel
def f(A: u8[N, D], B: i8[E, M, D], Y: f32[H, N, M], X: bf16[N, M], x: bf16[N, H], perm: i32[M],
      Z: f8e4m3[T, N, H]):
    for h in each(H):
        for m, n in tiles(M, N):
            acc = full(i32[n, m], 0)
            for e in each(E):
                acc += A[n, :] @ B[e, m, :]
            Y[h, n, m] = max(X[n, m], x[n, h])
            Z[perm[m], n, h] = cast(acc, f8e4m3)
"""
    schedule = Schedule(tile=dict(m=128), consumers=2, cluster=dict(n=2), scheduler="persistent")
    prove(wsdsl.parse(text).f._compile(schedule, {"D": 64}, ()).scheduled)
