"""Loops of which one partition has more than another, or that only one has to do with."""

import pytest

from wsdsl import Schedule, parse

TWO_LOOPS = """
@kernel
def f(A: bf16[M, K], B: bf16[N, K], X: bf16[M, N], Y: bf16[M, N]):
    for m in tiles(M):
        s = zeros(f32[m])
        for n in tiles(N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[m, k] @ B[n, k]
            s += sum(acc * acc, over=n)
        for n in tiles(N):
            Y[m, n] = cast(X[m, n], f32) / s
"""
STORES_IN_A_LOOP = """
@kernel
def f(A: bf16[M, K], B: bf16[N, K], w: f32[E], C: bf16[E, M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        for e in each(E):
            C[e, m, n] {sign} acc * w[e]
"""


@pytest.mark.parametrize("schedule", [None, Schedule(stages=2), Schedule(scheduler="grid")])
def test_a_second_loop_over_the_same_dimension(schedule: Schedule | None) -> None:
    parse(TWO_LOOPS).f.compile(schedule, M=70, N=88, K=40).prove()


@pytest.mark.parametrize("consumers", [2, 3])
@pytest.mark.parametrize("sign", ["=", "+="])
def test_stores_in_a_loop_beside_another_s_products(consumers: int, sign: str) -> None:
    schedule = Schedule(tile=dict(m=64, n=40), mode="pingpong", consumers=consumers)
    parse(STORES_IN_A_LOOP.format(sign=sign)).f.compile(schedule, M=70, N=88, K=40, E=2).prove()
