"""Vectors that an epilogue reads come by TMA, a whole tile's at once."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.case_table import matmul_text
from wsdsl import Schedule, parse
from wsdsl.ir.ops import LoadGlobal, LoadPanels, LoadShared
from wsdsl.ir.rewriter import walk
from wsdsl.prover.memory import smem_effects

TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
TEXT = matmul_text(
    "scaled(A: f16[M, K], B: f16[N, K], rows: {vector}[M], columns: {vector}[N], C: {out}[M, N])",
    "A[m, k] @ B[n, k]",
    "C[m, n] = acc * cast(rows[m], f32) + cast(columns[n], f32)",
)


def kernel(vector: str = "f32", out: str = "f16") -> Any:
    return parse(TEXT.format(vector=vector, out=out)).scaled


def reads(made: Any) -> list[str]:
    kinds = (LoadGlobal, LoadPanels, LoadShared)
    return [type(op).__name__ for op in walk(made.scheduled.body) if isinstance(op, kinds)]


def test_one_slot_has_what_a_tile_reads() -> None:
    schedule = Schedule(tile=dict(m=128, n=144, k=64), mode="cooperative", stages=4)
    made = kernel().compile(schedule=schedule)
    # A line of 144 elements and one of 128, each from a multiple of 128 bytes on.
    assert 'shared<1280 x 4> = allocate_shared(label="part_slots"' in str(made.scheduled)
    assert "part_lines" not in str(made.scheduled)
    # The rows once, the columns in three chunks, and nothing of GMEM.
    assert sorted(reads(made)) == ["LoadPanels"] * 3 + ["LoadShared"]
    assert made.prove().proved


SCHEDULES = {
    "pingpong": Schedule(tile=dict(m=128, n=72, k=64), mode="pingpong"),
    "three": Schedule(tile=dict(m=192, n=104, k=64), mode="cooperative", consumers=3),
    "swapped": Schedule(tile=dict(m=40, n=128, k=64), mma_m="n"),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("name", "out", "vector"),
    [
        (name, out, vector)
        for i, name in enumerate(SCHEDULES)
        for j, vector in enumerate(TYPES)
        for out in (("f32", "f16")[(i + j) % 2],)
    ],
)
def test_values(name: str, out: str, vector: str) -> None:
    """Every two of the three together."""
    schedule = SCHEDULES[name]
    random = np.random.default_rng(1)
    M, N, K = 201, 200, 72
    a, b = (random.standard_normal((rows, K)).astype(np.float16) for rows in (M, N))
    rows, columns = (random.standard_normal(n).astype(TYPES[vector]) for n in (M, N))
    made = kernel(vector, out)
    got = made.simulate(a, b, rows, columns, np.zeros((M, N), TYPES[out]), schedule=schedule)
    wanted = a.astype(float) @ b.astype(float).T * rows.astype(float)[:, None]
    assert np.allclose(got, wanted + columns.astype(float), rtol=2e-3, atol=4e-3)
    assert made.compile(schedule=schedule).prove().proved
    made.compile(schedule=schedule).ptx  # noqa: B018


def test_what_tma_does_not_take_is_read_directly() -> None:
    random = np.random.default_rng(1)
    a, b = (random.standard_normal((rows, 64)).astype(np.float16) for rows in (64, 40))
    rows, columns = np.ones(65, np.float32), np.ones(41, np.float32)
    got = kernel().simulate(a, b, rows[1:], columns[1:], np.zeros((64, 40), np.float16))
    assert np.allclose(got, a.astype(float) @ b.astype(float).T + 1, rtol=2e-3, atol=4e-3)


def test_bytes_are_read_directly() -> None:
    """Lines of them would ask for tiles of 16 columns more or less."""
    made = kernel("f8e4m3").compile(schedule=Schedule(tile=dict(m=128, n=72, k=64)))
    assert {*reads(made)} == {"LoadGlobal"}


WHOLE = {
    "dimension": """
@kernel
def f(A: bf16[M, D], B: bf16[N, D], v: f32[N], C: bf16[M, N]):
    for m, n in tiles(M, N):
        C[m, n] = A[m, :] @ B[n, :] + v[n]
""",
    "held": """
@kernel
def f(A: bf16[M, D], B: bf16[N, D], v: f32[M], C: f32[M]):
    for m in tiles(M):
        a, s = A[m, :], zeros(f32[m])
        for n in tiles(N):
            s += sum(relu(a @ B[n, :]), over=n)
        C[m] = s * v[m]
""",
}


@pytest.mark.parametrize("text", WHOLE.values(), ids=WHOLE)
def test_beside_operands_of_the_same_block(text: str) -> None:
    random = np.random.default_rng(2)
    M, N, D = 136, 200, 64
    a, b = (random.integers(-2, 3, (rows, D)).astype(ml_dtypes.bfloat16) for rows in (M, N))
    made = parse(text).f
    v = random.integers(-3, 4, N if "v: f32[N]" in text else M).astype(np.float32)
    compiled = made.compile(M=M, N=N, D=D)
    assert "part_slots" in str(compiled.scheduled) and compiled.prove().proved
    np.testing.assert_array_equal(made.simulate(a, b, v), made.reference(a, b, v))


def test_a_piece_of_a_vector_is_one_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the prover, and not one for each 16 bytes: eight vectors took 3 s, sixteen 28."""
    asked: list[int] = []

    def read(*args: Any) -> None:
        asked.extend(end - start for start, end in args[5])
        known(*args)

    known = smem_effects.read_by_threads
    monkeypatch.setattr(smem_effects, "read_by_threads", read)
    schedule = Schedule(tile=dict(m=128, n=144, k=64), mode="cooperative", stages=4)
    assert kernel().compile(schedule=schedule).certificate.proved
    pieces = {512, 4 * 64, 4 * 16}  # rows, and chunks of columns
    assert set(asked) == pieces
