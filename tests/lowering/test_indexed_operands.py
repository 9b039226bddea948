"""Operands of products may be indexed by whatever scalar there is, wherever it is computed."""

from random import Random

import numpy as np
import pytest

from tests.lowering.indexed_operands import ONE_AXIS, SCHEDULES, arrays, outcome, program
from wsdsl import Schedule, parse


@pytest.mark.sampled(8)
@pytest.mark.parametrize("what", ONE_AXIS)
def test_indices_are_known_where_slots_are_filled(what: str) -> None:
    rng = Random(what)
    ends: list[str] = []
    for schedule in (None, rng.choice(SCHEDULES[1:])):
        made = program(rng, what)
        ends.append(outcome(made, schedule, arrays(made, rng)))
        assert not ends[-1].startswith("FAILED"), f"{schedule!r}\n{made.text}\n{ends[-1]}"
    assert ends[0] == "right"


HANDED_ON = {
    "by each": """
            for g in each(E):
                r = max(r, (end(m) - 1) // 64)
            for k in tiles(K):
                a += X[m, k] @ W[r, n, k]""",
    "by the loop itself": """
            for k in tiles(K, by=32):
                a += X[m, k] @ W[r, n, k]
                r = (end(m) - 1) // 64""",
    "by an if": """
            if L[0] > 0:
                r = (end(m) - 1) // 64
            for k in tiles(K):
                a += X[m, k] @ W[r, n, k]""",
}


@pytest.mark.parametrize("way", HANDED_ON)
def test_no_tile_is_shared_that_depends_on_a_ctas_place_by_what_is_handed_on(way: str) -> None:
    text = f"""
@kernel
def handed(X: f16[M, K], W: f16[E, N, K], L: i32[E], C: f32[M, N]):
    for m in tiles(M, by=64):
        for n in tiles(N):
            a = zeros(f32[m, n])
            r = 0{HANDED_ON[way]}
            C[m, n] = a
"""
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, (130, 72)).astype(np.float16)
    w = rng.integers(-2, 3, (3, 40, 72)).astype(np.float16)
    table = np.array([1, 2, 0], np.int32)
    schedule = Schedule(tile=dict(n=32, k=32), consumers=1, cluster=dict(m=2))
    found, right = np.zeros((130, 40), np.float32), np.zeros((130, 40), np.float32)
    handed = parse(text).handed
    handed.simulate(x, w, table, found, schedule=schedule)
    handed.reference(x, w, table, right)
    np.testing.assert_array_equal(found, right)
