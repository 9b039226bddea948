"""Elements that a tile stores more than once: the last store is what stays."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.lowering.test_store_hazards import IN_A_LOOP, PLACES, SCHEDULES, SOURCE, STORES
from wsdsl import parse

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu
M, N, K = 1000, 1096, 256
WEIGHTS = np.array([1.0, 3.0, 2.0], np.float32)
OF_THE_SUM = {"added to": 3.0}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("stores", STORES)
def test_the_last_store_is_what_stays(stores: str, dtype: str, schedule: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, (rows, K)).astype(ml_dtypes.bfloat16) for rows in (M, N))
    again = parse(SOURCE.format(dtype=dtype, stores=STORES[stores])).again
    kind = ml_dtypes.bfloat16 if dtype == "bf16" else np.float32
    sums = a.astype(np.float64) @ b.astype(np.float64).T
    for _ in range(5):
        c = np.zeros((M, N), kind)
        again(a, b, WEIGHTS, c, np.zeros(M, np.float32), schedule=SCHEDULES[schedule])
        found = c.astype(np.float64)
        np.testing.assert_allclose(found, OF_THE_SUM.get(stores, 2.0) * sums, rtol=2**-6, atol=1e-3)


@pytest.mark.parametrize("place", PLACES)
def test_iterations_that_meet_keep_their_order(place: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, (rows, K)).astype(ml_dtypes.bfloat16) for rows in (M, N))
    table = np.array([1, 0, 1], np.int32)
    kernel = parse(IN_A_LOOP.format(place=place)).f
    wanted = np.zeros((5, M, N), np.float32)
    kernel.reference(a, b, WEIGHTS, table, wanted)
    for _ in range(5):
        found = np.zeros_like(wanted)
        kernel(a, b, WEIGHTS, table, found)
        np.testing.assert_array_equal(found, wanted)
