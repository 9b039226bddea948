"""What decides which operands are loaded, if any, is computed by the thread that loads them too."""

import ml_dtypes
import numpy as np
import pytest

from wsdsl import CompileError, Schedule, parse
from wsdsl.dispatch.kernel import Kernel

SOURCE = """
@kernel
def chosen(A: bf16[E, M, K], B: bf16[N, K], L: i32[E], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
{body}
        C[m, n] = acc
"""
BODIES = {
    "by an if": """
        e = 0
        if L[0] > 1:
            e = 1
        for k in tiles(K):
            acc += A[e, m, k] @ B[n, k]""",
    "by a sum": """
        s = 0
        for e in each(E):
            s += L[e]
        if s > 3:
            for k in tiles(K):
                acc += A[1, m, k] @ B[n, k]""",
    "one after the other": """
        e = L[0]
        for i in each(E):
            for k in tiles(K):
                acc += A[e, m, k] @ B[n, k]
            e = L[e]""",
    "while few": """
        s = 0
        for e in each(E):
            if s < 2:
                for k in tiles(K):
                    acc += A[e, m, k] @ B[n, k]
                s = s + L[e]""",
    "last of all": """
        last = 0
        for e in each(E):
            if L[e] > 0:
                last = e
        for k in tiles(K):
            acc += A[last, m, k] @ B[n, k]""",
}
SCHEDULES = {
    "default": Schedule(),
    "in turns": Schedule(tile=dict(m=64, n=24), mode="pingpong"),
    "cluster": Schedule(tile=dict(m=64, n=24, k=32), consumers=1, cluster=dict(m=2)),
}


def kernel(body: str) -> Kernel:
    return parse(SOURCE.format(body=body.strip("\n"))).chosen


@pytest.mark.sampled(4)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("body", BODIES)
def test_both_sides_take_the_same_way(body: str, schedule: str) -> None:
    rng = np.random.default_rng(0)
    bf16 = ml_dtypes.bfloat16
    a = rng.standard_normal((3, 130, 72)).astype(bf16)
    b = rng.standard_normal((40, 72)).astype(bf16)
    made = kernel(BODIES[body])
    for table in ([1, 2, 0], [2, 0, 1], [0, 0, 0]):
        found, right = (np.zeros((130, 40), np.float32) for _ in range(2))
        table = np.array(table, np.int32)
        made.simulate(a, b, table, found, schedule=SCHEDULES[schedule])
        made.reference(a, b, table, right)
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-3)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("body", BODIES)
def test_proved(body: str) -> None:
    assert kernel(BODIES[body]).compile(E=3).certificate.states < 300


@pytest.mark.parametrize("test", ["max(index(m), over=m) > 64", "sum(B[n, 0], over=n) > 0.0"])
def test_that_thread_has_no_tiles(test: str) -> None:
    body = f"""
        if {test}:
            for k in tiles(K):
                acc += A[0, m, k] @ B[n, k]"""
    with pytest.raises(CompileError, match="computes scalars only"):
        kernel(body).compile(M=64, N=64)


GATHERED = """
@kernel
def gathered(A: bf16[G, M, K], B: bf16[E, N, K], which: i32[G], C: bf16[G, M, N]):
    for g in each(G):
        for m, n in tiles(M, N):
            e = which[g]
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[g, m, k] @ B[e, n, k]
            C[g, m, n] = acc
"""


def test_an_index_from_memory_beside_copies_by_threads() -> None:
    """TMA's loads stand in a block of one thread there, which knows the index, too."""
    random, gathered = np.random.default_rng(3), parse(GATHERED).gathered
    a, b = (
        random.integers(-2, 3, s).astype(ml_dtypes.bfloat16) for s in ((3, 72, 64), (2, 40, 64))
    )
    which = np.array([1, 0, 1], np.int32)
    schedule = Schedule(tile=dict(m=64, n=32, k=32), consumers=1, stages=2)
    made = gathered._compile(schedule, {}, ("A",))
    assert made.prove().proved
    np.testing.assert_array_equal(made.simulate(a, b, which), gathered.reference(a, b, which))
