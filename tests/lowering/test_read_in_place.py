"""Operands of products that threads read as well: where the slot has them, and not once more."""

from collections import Counter

import ml_dtypes
import numpy as np
import pytest

from tests.simulator.mutants import exchange
from wsdsl import Schedule, parse
from wsdsl.dispatch.kernel import Kernel
from wsdsl.ir import ops
from wsdsl.ir.op import Op
from wsdsl.ir.op_fields import op_name
from wsdsl.ir.rewriter import walk
from wsdsl.prover.machine.explore import Refuted, explore

SOURCE = """
@kernel
def normalised(A: {dtype}[M, K], B: {dtype}[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros({sum}[m, n])
        squares = zeros(f32[m])
        for k in tiles(K):
{body}
        C[m, n] = cast(acc, f32) * rsqrt(squares / cast(K, f32) + 0.01)
"""
BEHIND = """
            acc += A[m, k] @ B[n, k]
            x = cast(A[m, k], f32)
            squares += sum(x * x, over=k)
"""
IN_FRONT = """
            x = cast(A[m, k], f32)
            squares += sum(x * x, over=k)
            acc += A[m, k] @ B[n, k]
"""
TWICE = """
            x = cast(A[m, k], f32)
            y = cast(A[m, k], f32)
            acc += A[m, k] @ B[n, k]
            squares += sum(x * y, over=k)
"""
SCHEDULES = {
    "default": Schedule(),
    "in turns": Schedule(tile=dict(m=64, n=24), mode="pingpong"),
    "tall": Schedule(tile=dict(m=128, n=32), consumers=1),
    "cluster": Schedule(tile=dict(m=64, n=32), consumers=1, cluster=dict(m=2, n=2)),
    "stream_k": Schedule(tile=dict(m=64, n=32), consumers=1, scheduler="stream_k"),
}


def kernel(body: str = BEHIND, dtype: str = "bf16") -> Kernel:
    total = "i32" if dtype == "i8" else "f32"
    return parse(SOURCE.format(body=body.strip("\n"), dtype=dtype, sum=total)).normalised


def loads(made: Kernel) -> Counter[str]:
    """How often what threads load A by is in the code, but for what copies it to slots."""
    members = made._compile(Schedule(mode="cooperative"), {}, ()).scheduled.ops
    found = (op for op in members if isinstance(op, (ops.LoadPanels, ops.LoadGlobal)))
    return Counter(op_name(type(op)) for op in found)


@pytest.mark.parametrize(
    ("body", "dtype"), [(BEHIND, "bf16"), (IN_FRONT, "bf16"), (TWICE, "bf16"), (BEHIND, "f8e4m3")]
)
def test_where_it_lies(body: str, dtype: str) -> None:
    """A line of 128 bytes of fp8 is two chunks, and is read once."""
    assert loads(kernel(body, dtype)) == {"load_panels": 1}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("body", [BEHIND, IN_FRONT])
def test_right_and_proved(body: str, schedule: str) -> None:
    rng = np.random.default_rng(0)
    made, chosen = kernel(body), SCHEDULES[schedule]
    a = rng.standard_normal((130, 200)).astype(ml_dtypes.bfloat16)
    c = rng.standard_normal((40, 200)).astype(ml_dtypes.bfloat16)
    right = np.zeros((130, 40), np.float32)
    made.reference(a, c, right)
    for seed in range(2):
        found = np.zeros((130, 40), np.float32)
        made.simulate(a, c, found, schedule=chosen, seed=seed)
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-3)
    explore(made._compile(chosen, {}, ()).scheduled)


@pytest.mark.parametrize("without", [ops.FenceAsyncProxy, ops.SyncWarp])
def test_a_slot_is_given_back_when_it_is_read(without: type[Op]) -> None:
    scheduled = kernel()._compile(SCHEDULES["tall"], {}, ()).scheduled
    members = list(walk(scheduled.body))
    read = max(i for i, op in enumerate(members) if isinstance(op, ops.LoadPanels))
    at = next(i for i in range(read, len(members)) if isinstance(members[i], without))
    with pytest.raises(Refuted, match=r"may overwrite item . of `slots` while it is still read"):
        explore(exchange(scheduled, at))


NESTED = """
@kernel
def f(A: bf16[M, K], B: bf16[N, K], D: bf16[M, K], H: bf16[E, M, K], L: i32[E], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        s = zeros(f32[m])
        c = 0
        for k in tiles(K, by=64):
{body}
        C[m, n] = acc + s + cast(c, f32)
"""
BODIES = {
    "other slots between": """
            s += sum(cast(A[m, k], f32), over=k)
            if end(k) > 64:
                acc += D[m, k] @ B[n, k]
            acc += A[m, k] @ B[n, k]""",
    "other slots before it is read": """
            acc += A[m, k] @ B[n, k]
            for e in each(E):
                acc += H[e, m, k] @ B[n, k]
            s += sum(cast(A[m, k], f32), over=k)""",
    "handed on": """
            if end(k) > 64:
                x = A[m, k]
                acc += x @ B[n, k]
            else:
                x = D[m, k]
            s += sum(cast(x, f32), over=k)""",
    "a place that is found out later": """
            s += sum(cast(A[m, k], f32), over=k)
            e = L[c]
            acc += A[m, k] @ B[n, k]
            acc += H[e, m, k] @ B[n, k]
            s += sum(cast(H[e, m, k], f32), over=k)""",
    "two slots an iteration": """
            acc += A[m, k] @ B[n, k]
            if L[0] > 0:
                c = c + 1
            acc += D[m, k] @ B[n, k]""",
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("body", BODIES)
def test_slots_in_their_order(body: str) -> None:
    made = parse(NESTED.format(body=BODIES[body].strip("\n"))).f
    rng = np.random.default_rng(0)

    def whole(*shape: int) -> np.ndarray:
        return rng.integers(-3, 4, shape).astype(ml_dtypes.bfloat16)

    given = whole(64, 200), whole(40, 200), whole(64, 200), whole(3, 64, 200)
    table = np.array([1, 0, 2], np.int32)
    found, right = (np.zeros((64, 40), np.float32) for _ in range(2))
    made.reference(*given, table, right)
    for seed in range(2):
        made.simulate(*given, table, found, seed=seed)
        np.testing.assert_array_equal(found, right)
    explore(made._compile(None, {}, ()).scheduled)


def test_what_is_summed_over_and_read_is_one_line() -> None:
    """As wide as the other columns, slots of it would leave room for one of them."""
    chosen = kernel().schedule(M=4096, N=4096, K=4096)
    assert chosen.tile is not None and chosen.stages is not None
    assert chosen.tile["k"] == 64 and chosen.stages >= 3


def test_threads_and_products_add_to_one_sum() -> None:
    """The wait for the products is in the loop, as the threads add there."""
    text = """
@kernel
def k(A: f16[M, K], B: f16[N, K], r: f16[M, N], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
            acc += sum(cast(A[m, k], f32), over=k)
        C[m, n] = acc + cast(r[m, n], f32)
"""
    rng = np.random.default_rng(0)
    a, b, r = (rng.integers(-2, 3, (64, n)).astype(np.float16) for n in (136, 136, 64))
    c = np.zeros((64, 64), np.float32)
    given = Schedule(tile=dict(m=64, n=16, k=64), consumers=1)
    parse(text).k.simulate(a, b, r, c, schedule=given)
    exact = a.astype(np.float32) @ b.astype(np.float32).T + r
    assert np.array_equal(c, exact + a.astype(np.float32).sum(1, keepdims=True))
