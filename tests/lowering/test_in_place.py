"""Kernels that read what they write: in the order of their text, whatever the schedule."""

import numpy as np
import pytest

from tests.in_place_kernels import BODIES, agree, arrays, in_place
from wsdsl import CompileError, Schedule, parse
from wsdsl.diagnostics import WsdslError
from wsdsl.prover.memory.gmem_order import check_global_order
from wsdsl.simulator.simulation import simulate

SIZES = dict(M=72, N=40, K=40, E=3, G=3)
ONE = Schedule(consumers=1, scheduler="grid")
TWO = Schedule(consumers=2)
PINGPONG = Schedule(tile=dict(m=64, n=24), mode="pingpong")


def run(name: str, dtype: str, schedule: Schedule | None, unaligned: tuple[str, ...] = ()) -> None:
    kernel = in_place(name, dtype)
    scheduled = kernel._compile(schedule, SIZES, unaligned).scheduled
    check_global_order(scheduled)
    wanted = arrays(kernel, SIZES)
    kernel.reference(*wanted)
    for seed, agents in enumerate(("lazy", "random")):
        found = arrays(kernel, SIZES)
        names = [p.name for p in kernel.tile_ir.params]
        simulate(scheduled, dict(zip(names, found, strict=True)), seed=seed, agents=agents)
        agree(found, wanted)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", BODIES)
def test_the_text_is_the_order(name: str, dtype: str) -> None:
    run(name, dtype, TWO if dtype == "f32" else ONE)


@pytest.mark.parametrize("name", ["loop", "stored twice", "transposed"])
def test_by_threads(name: str) -> None:
    run(name, "bf16", TWO, ("X", "Y"))


@pytest.mark.parametrize("tile", [dict(m=64, n=16), dict(m=1, n=256)])
def test_gone_over_again_by_tiles(tile: dict[str, int]) -> None:
    run("gone over again", "bf16", Schedule(tile=tile))


def test_in_turns() -> None:
    run("product", "f16", PINGPONG)


@pytest.mark.parametrize("trips", [0, 1, 2, 5])
def test_trips(trips: int) -> None:
    kernel, sizes = in_place("loop", "f32"), SIZES | dict(E=trips)
    found, wanted = arrays(kernel, sizes), arrays(kernel, sizes)
    kernel.reference(*wanted)
    kernel.simulate(*found, seed=trips)
    agree(found, wanted)


def test_other_kernels_have_no_such_fence() -> None:
    text = """
@kernel
def f(X: f32[M, N], Z: f32[M, N], W: i4[E, N]):
    for m, n in tiles(M, N):
        s = zeros(f32[m, n])
        for e in each(E):
            s = s + X[m, n] * cast(W[e, n], f32)
            Z[m, n] = s
"""
    told = parse(text).f.compile(M=70, N=40, E=3).ir()
    assert "everywhere" not in told
    assert told.count("read=False") == 2


REFUSED = {
    "in a later loop": (
        "        s = zeros(f32[m, n])\n        for e in each(E):\n            s = s + A[m, n]\n"
        "            X[m, n] = s\n        for e in each(E):\n            Z[m, n] += X[m, n]",
        "loads and stores `X`",
    ),
    "in a loop of other tiles": (
        "        s = zeros(f32[m, n])\n        for e in each(E):\n            s = s + X[e, n]\n"
        "        X[m, n] = s",
        "reads and stores `X`",
    ),
    "another place": ("        X[m, n] = X[m, index(n) + 1] + A[m, n]", "reads and stores `X`"),
    "one of two places": (
        "        X[m, n] = X[m, n] + A[m, n]\n        X[index(m) + 1, n] = A[m, n]",
        "loads and stores `X`",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    body, told = REFUSED[name]
    head = "X: f32[M, N], A: f32[M, N], Z: f32[M, N], w: f32[E]"
    text = f"@kernel\ndef f({head}):\n    for m, n in tiles(M, N):\n{body}\n"
    with pytest.raises(WsdslError, match=told):
        parse(text).f.compile(M=64, N=64, E=2)


def test_what_decides_what_is_loaded_is_not_written() -> None:
    text = """
@kernel
def f(A: bf16[E, M, K], B: bf16[N, K], I: i32[G], C: f32[G, M, N]):
    for g in each(G):
        i = I[g]
        for m, n in tiles(M, N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[i, m, k] @ B[n, k]
            C[g, m, n] = acc
        I[g] = i + 1
"""
    with pytest.raises(CompileError, match="addresses of loads depend on `I`"):
        parse(text).f.compile(M=64, N=64, K=64, E=2, G=2)


def test_constants_are_equal_places() -> None:
    text = """
@kernel
def f(X: f32[E, M, N], A: f32[M, N]):
    for m, n in tiles(M, N):
        X[0, m, n] = X[0, m, n] + A[m, n]
        X[1, m, n] = A[m, n]
"""
    kernel = parse(text).f
    x, a = np.ones((2, 70, 40), np.float32), np.ones((70, 40), np.float32)
    kernel.simulate(x, a)
    assert (x[0] == 2.0).all() and (x[1] == 1.0).all()


@pytest.mark.sampled
@pytest.mark.parametrize("name", BODIES)
def test_the_ptx_does_the_same(name: str) -> None:
    """Where a loop stands in another one with its bounds, too: LLVM knows that it is run."""
    kernel = in_place(name, "f32")
    sizes = dict.fromkeys(kernel.dims, 72)
    assert kernel._compile(Schedule(consumers=1), sizes, ()).prove()
