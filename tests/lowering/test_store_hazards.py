"""Elements that a kernel stores more than once, and stores that all tiles would make."""

import ml_dtypes
import numpy as np
import pytest

from wsdsl import CompileError, Schedule, compile_ir, parse
from wsdsl.dispatch.kernel import Kernel
from wsdsl.simulator.simulation_error import SimulationError

SOURCE = """
@kernel
def again(A: bf16[M, K], B: bf16[N, K], w: f32[E], C: {dtype}[M, N], R: f32[M]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
{stores}
"""
STORES = {
    "twice": "        C[m, n] = acc\n        C[m, n] = acc * 2.0",
    "scattered": "        C[m, n] = acc\n        C[index(m), n] = acc * 2.0",
    "added to": "        C[m, n] = acc\n        C[m, n] += acc * 2.0",
    "read between": "        C[m, n] = acc + C[m, n]\n        C[m, n] = acc * 2.0",
    "in a loop": "        for e in each(E):\n            C[m, n] = acc * w[e]",
}
SCHEDULES = {
    "default": None,
    "one": Schedule(tile=dict(m=64, n=24), consumers=1),
    "in turns": Schedule(tile=dict(m=64, n=24), mode="pingpong"),
}


def kernel(stores: str, dtype: str = "f32") -> Kernel:
    return parse(SOURCE.format(dtype=dtype, stores=stores)).again


def arguments(dtype: str = "f32") -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    bf16 = ml_dtypes.bfloat16
    a, b = (rng.standard_normal((rows, 40)).astype(bf16) for rows in (70, 96))
    c = np.zeros((70, 96), bf16 if dtype == "bf16" else np.float32)
    return [a, b, np.array([1.0, 3.0, 2.0], np.float32), c, np.zeros(70, np.float32)]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("stores", STORES)
def test_the_last_store_is_what_stays(stores: str, dtype: str, schedule: str) -> None:
    made = kernel(STORES[stores], dtype)
    wanted = arguments(dtype)
    made.reference(*wanted)
    for seed in range(3):
        given = arguments(dtype)
        made.simulate(*given, schedule=SCHEDULES[schedule], seed=seed)
        found, right = given[3].astype(np.float32), wanted[3].astype(np.float32)
        np.testing.assert_allclose(found, right, rtol=2**-7, atol=1e-4)


@pytest.mark.parametrize(
    ("place", "given"),
    [
        ("m, index(n) ^ 32", Schedule(tile=dict(m=32, n=64), consumers=1, mma_m="n")),
        ("index(m) ^ 64, n", Schedule(tile=dict(m=128, n=64), consumers=2)),
    ],
    ids=["another warp", "another warpgroup"],
)
def test_another_thread_stores_last(place: str, given: Schedule) -> None:
    made = kernel(f"        C[m, n] = acc\n        C[{place}] = acc * 2.0")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, (128, 40)).astype(ml_dtypes.bfloat16) for _ in range(2))
    w, r = np.zeros(3, np.float32), np.zeros(128, np.float32)
    found, wanted = (np.zeros((128, 128), np.float32) for _ in range(2))
    made.reference(a, b, w, wanted, r)
    made.simulate(a, b, w, found, r, schedule=given)
    assert np.array_equal(found, wanted)


def test_without_the_wait_it_is_a_race() -> None:
    compiled = kernel(STORES["twice"]).compile(M=70, N=96, K=40, E=3)
    head, wait, last = compiled.ir().rpartition("tma_store_wait(pending=0, read=False)")
    edited = head.replace(wait, "tma_store_wait(pending=0)") + wait + last
    with pytest.raises(SimulationError, match="covers that store"):
        compile_ir(edited).simulate(*arguments())


PLACES = {"0": 2, "t[e]": 2, "e // 2": 2, "min(e, 1)": 2, "e": 1, "e + 1": 1, "e * 2": 1}
"""In a loop over `e`, and how often one waits for all that was stored; once it is at the end."""
IN_A_LOOP = """
@kernel
def f(A: bf16[M, K], B: bf16[N, K], w: f32[E], t: i32[E], C: f32[L, M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        for e in each(E):
            C[{place}, m, n] = acc * w[e]
"""


def test_stores_apart_do_not_wait() -> None:
    text = IN_A_LOOP.format(place=0).replace("for e in each(E)", "if E > 0")
    text += "        C[1, m, n] = acc * 2.0\n"
    made = parse(text.replace("w[e]", "w[0]")).f
    assert made.compile(M=70, N=96, K=40, E=2, L=2).ir().count("read=False") == 1


@pytest.mark.sampled(6)
@pytest.mark.parametrize("place", PLACES)
def test_iterations_that_may_meet_wait(place: str) -> None:
    made = parse(IN_A_LOOP.format(place=place)).f
    a, b, w, *_ = arguments()
    t = np.array([1, 0, 1], np.int32)
    found, wanted = (np.zeros((5, 70, 96), np.float32) for _ in range(2))
    made.reference(a, b, w, t, wanted)
    made.simulate(a, b, w, t, found)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)
    assert made.compile(M=70, N=96, K=40, E=3, L=5).ir().count("read=False") == PLACES[place]


def test_what_all_tiles_would_store_is_refused() -> None:
    with pytest.raises(CompileError, match="all iterations of `n` store to"):
        kernel("        R[m] = w[0]\n        C[m, n] = acc").compile(M=70, N=96, K=40, E=1)
    for store in ("R[m] += sum(acc, over=n)", "R[m] = sum(acc, over=n)"):
        kernel(f"        {store}").compile(M=70, N=96, K=40, E=1)


SHAPES = """
@kernel
def shapes(A: bf16[M, K], B: bf16[N, K], D: bf16[N, K], C: {dtype}[{places}]):
    for n in tiles(N):
        for m in tiles(M, by=128):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[m, k] @ B[n, k]
            C[{first}] = acc
        for l in tiles(M, by=256):
            sec = zeros(f32[l, n])
            for k in tiles(K):
                sec += A[l, k] @ D[n, k]
            C[{second}] = sec
"""
BY_ROWS = dict(places="M, N", first="m, n", second="l, n")
BY_COLUMNS = dict(places="N, M", first="n, m", second="n, l")


@pytest.mark.sampled
@pytest.mark.parametrize("size", [(256, 32), (256, 33), (250, 40)])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("order", [BY_ROWS, BY_COLUMNS], ids=["rows", "columns"])
def test_tiles_of_another_shape(order: dict[str, str], dtype: str, size: tuple[int, int]) -> None:
    """Whose elements another warpgroup has stored: it is waited for, and by TMA for its copies."""
    (m, n), rng, bf16 = size, np.random.default_rng(0), ml_dtypes.bfloat16
    made = parse(SHAPES.format(dtype=dtype, **order)).shapes
    a, b, d = (rng.standard_normal((rows, 64)).astype(bf16) for rows in (m, n, n))
    wanted = a.astype(np.float32) @ d.astype(np.float32).T
    for seed in range(2):
        c = np.zeros((m, n) if order is BY_ROWS else (n, m), bf16 if dtype == "bf16" else "f4")
        made.simulate(a, b, d, c, seed=seed)
        found = c if order is BY_ROWS else c.T
        np.testing.assert_allclose(found.astype(np.float32), wanted, rtol=2**-7, atol=1e-2)
