"""Stores at places that a tile holds: each piece has its own, and none beyond the tensors."""

import ml_dtypes
import numpy as np
import pytest

import wsdsl
from tests.corpus.texts import TEXTS
from wsdsl import Schedule
from wsdsl.simulator.machine import simulate

SCATTERED = wsdsl.parse(TEXTS["scattered"][0]).scattered
SCHEDULES = {
    "a block of rows": Schedule(tile=dict(m=64, n=48), consumers=1),
    "two blocks of rows": Schedule(tile=dict(m=128, n=48), consumers=1),
    "shared rows": Schedule(tile=dict(m=128, n=80), consumers=2),
    "shared columns": Schedule(tile=dict(m=64, n=64), consumers=2, share="n"),
    "a cluster": Schedule(tile=dict(m=64, n=16), consumers=1, cluster=dict(m=2, n=2)),
    "columns ride M": Schedule(tile=dict(m=32, n=64), consumers=1, mma="n"),
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
