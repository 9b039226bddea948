"""Accumulator promotion of fp8, and factors of operands that move to the accumulator."""

import ml_dtypes
import numpy as np
import pytest

import wsdsl
from tests.case_table import matmul_text
from tests.kernels import CASES
from wsdsl import Schedule, ScheduleError
from wsdsl.simulator.reference.arithmetic import NUMPY_DTYPES


@pytest.mark.parametrize(
    ("given", "every"),
    [
        (Schedule(), 128),
        (Schedule(tile=dict(k=64)), 64),
        (Schedule(tile=dict(k=256, n=64), mma_promotion_interval=256), 256),
        (Schedule(tile=dict(k=256, n=64)), 128),
        (Schedule(mma_promotion_interval=256), 256),
        (Schedule(mma_promotion_interval=0), 0),
    ],
    ids=repr,
)
def test_the_choice(given: Schedule, every: int) -> None:
    chosen = CASES["product_f8e4m3"].kernel.schedule(given)
    assert chosen.mma_promotion_interval == every
    assert eval(repr(chosen), {"Schedule": Schedule}) == chosen


def test_promotion_takes_registers_for_two_sums() -> None:
    sizes = dict(M=8192, N=8192, K=8192)
    kernel = CASES["product_f8e4m3"].kernel
    promoted = kernel.schedule(**sizes).tile or {}
    assert (promoted["m"], promoted["n"]) == (128, 192)
    fast = (
        kernel.schedule(Schedule(mma_promotion_interval=0, mode="cooperative"), **sizes).tile or {}
    )
    assert fast["m"] * fast["n"] > promoted["m"] * promoted["n"]


@pytest.mark.parametrize(
    ("name", "schedule", "words"),
    [
        ("gemm", Schedule(mma_promotion_interval=128), "the kernel has no fp8 matmul"),
        (
            "product_f8e4m3",
            Schedule(mma_promotion_interval=512),
            "exceeds the tile's K extent, 256",
        ),
        (
            "product_f8e4m3",
            Schedule(mma_promotion_interval=64),
            "promoted to f32 after each tile of 128, not",
        ),
        ("product_f8e4m3", Schedule(tile=dict(k=192, n=64)), "use a tile of 128, or mma_promot"),
        ("product_f8e4m3", Schedule(tile=dict(k=256, m=256, n=64)), "4 blocks of 64 rows, not"),
        ("product_f8e4m3", Schedule(tile=dict(n=256)), "per thread (128 of them for promotion"),
        (
            "block_scaled",
            Schedule(tile=dict(k=256), mma_promotion_interval=256),
            "within a tile of 256",
        ),
    ],
    ids=repr,
)
def test_refused_with_the_reason(name: str, schedule: Schedule, words: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        CASES[name].kernel.schedule(schedule)
    assert words in str(caught.value)


def test_never_is_a_number() -> None:
    assert Schedule(mma_promotion_interval=0).precise_every == 0
    for wrong in (-1, False, 1.0):
        with pytest.raises(ScheduleError, match="0 for no promotion"):
            Schedule(mma_promotion_interval=wrong)  # type: ignore[arg-type]


def test_a_block_holds_whole_tiles() -> None:
    text = CASES["block_scaled"].kernel._compile(None, {}, ()).ir("partitioned")
    with pytest.raises(wsdsl.VerifyError, match="may cross a multiple of 64"):
        wsdsl.compile_ir(text.replace("size=128)", "size=64)"))


def test_registers_of_a_promoted_sum_are_those_of_a_row_block() -> None:
    kernel = CASES["product_f8e4m3"].kernel
    assert kernel.schedule(Schedule(tile=dict(m=256, n=128), consumers=2)).tile["m"] == 256
    with pytest.raises(ScheduleError, match="accumulators need 256"):
        kernel.schedule(Schedule(tile=dict(m=128, n=256), consumers=2))


SCALED = matmul_text(
    "scaled(A: {0}[M, K], B: {0}[N, K], s: {0}[M], C: f32[M, N])",
    "(A[m, k] * s[m] * 2.0) @ B[n, k]",
    "C[m, n] = acc",
)


@pytest.mark.parametrize("dtype", ["f8e4m3", "f8e5m2", "f16"])
def test_a_factor_is_not_rounded_to_the_type_of_the_operand(dtype: str) -> None:
    """Nor too large for it: what the largest number times 3 and 2 is, in f32."""
    kernel = vars(wsdsl.parse(SCALED.format(dtype)))["scaled"]
    held = NUMPY_DTYPES[dtype]
    largest = float(ml_dtypes.finfo(held).max)
    a, b, s = (
        np.full(shape, x).astype(held)
        for shape, x in (((3, 16), largest), ((5, 16), 1.0), (3, 3.0))
    )
    for c in (
        kernel.reference(a, b, s),
        kernel.simulate(a, b, s, schedule=Schedule(tile=dict(k=32))),
    ):
        assert np.all(c == 16 * 6 * largest)
