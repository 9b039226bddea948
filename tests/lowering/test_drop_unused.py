"""What nobody uses is neither loaded nor waited for."""

from __future__ import annotations

import numpy as np
import pytest

from wsdsl import Schedule, parse
from wsdsl.ir.tile_ops import ForEach, ForTiles, If, Load
from wsdsl.lowering.passes.drop_unused import drop_unused

TEXT = """
@kernel
def f(A: f16[M, K], B: f16[N, K], bias: f32[N], R: f16[M, N], flag: i32[1], C: f16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        d = cast(R[m, n], f32)DEAD
        STORE
"""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dead", ["", " + bias[n]", " * 2.0 + exp(bias[n])"])
@pytest.mark.parametrize(
    ("store", "mode"),
    [
        ("C[m, n] = acc", "cooperative"),
        ("C[m, n] = acc", "pingpong"),
        ("if flag[0] > 0:\n            C[m, n] = acc", "cooperative"),
    ],
)
def test_an_epilogue(dead: str, store: str, mode: str) -> None:
    kernel = parse(TEXT.replace("DEAD", dead).replace("STORE", store)).f
    loaded = [op.tensor.name for op in drop_unused(kernel.tile).ops if isinstance(op, Load)]
    assert not {"R", "bias"} & {*loaded}
    schedule = Schedule(tile=dict(m=128, n=64, k=64), mode=mode)  # pyright: ignore[reportArgumentType]
    kernel.compile(schedule=schedule).prove()
    random = np.random.default_rng(1)
    a, b, r, c = (
        random.integers(-2, 3, shape).astype(np.float16)
        for shape in ((130, 80), (72, 80), (130, 72), (130, 72))
    )
    bias, flag = np.zeros(72, np.float32), np.ones(1, np.int32)
    made = kernel.simulate(a, b, bias, r, flag, c, schedule=schedule)
    np.testing.assert_array_equal(made, a @ b.T)


def test_what_is_used_stays() -> None:
    kernel = parse(TEXT.replace("DEAD", "").replace("STORE", "C[m, n] = acc + d")).f
    assert drop_unused(kernel.tile) == kernel.tile


LOOPS = """
@kernel
def f(A: f16[M, K], B: f16[N, K], X: f32[M, L], rows: i32[E], C: f16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        dead = zeros(f32[m, n])
        total = zeros(f32[m])
        for k in tiles(K):
            if rows[0] > 0:
                dead += A[m, k] @ B[n, k] * total
                total += 1.0 * sum(cast(A[m, k], f32), over=k)
            acc += A[m, k] @ B[n, k]
        more = dead
        for l in tiles(L):
            more -= sum(X[m, l], over=l)
        for e in each(E):
            if rows[e] > 0:
                more += sum(dead, over=n)
        C[m, n] = acc
"""


def test_loops() -> None:
    """What nobody uses goes with what it was made of, round and round: loops, what they carry, and
    an `if` in them."""
    ops = [*drop_unused(parse(LOOPS).f.tile).ops]
    (loop,) = (op for op in ops if isinstance(op, ForTiles) and op.init)
    assert len(loop.result) == len(loop.args) == len(loop.init) == 1
    assert not any(isinstance(op, If | ForEach) for op in ops)
    assert {op.tensor.name for op in ops if isinstance(op, Load)} == {"A", "B"}
