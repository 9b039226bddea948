"""Reductions of blocks of an axis, broadcast back over them and stored once for each."""

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.case_table import matmul_text
from tests.word_kernels import FP8, MXFP8
from wsdsl import CompileError, Schedule, ScheduleError, TypeCheckError, parse
from wsdsl.ir.types import DTYPES
from wsdsl.simulator.reference.arithmetic import round_float


def of_blocks(per: int) -> str:
    return "@kernel" + FP8.replace("128", str(per))


def blocks(x: Any, per: int, fn: str = "max") -> Any:
    """The result of each block of a row."""
    starts = np.arange(0, x.shape[1], per)
    ufunc = dict(max=np.maximum, min=np.minimum, sum=np.add)[fn]
    return ufunc.reduceat(x, starts, axis=1)


def spread(blocks: Any, per: int, columns: int) -> Any:
    return blocks.repeat(per, axis=1)[:, :columns]


@pytest.mark.parametrize("per", [4, 32, 128, 256])
def test_quantization_of_blocks(per: int) -> None:
    kernel = parse(of_blocks(per)).fp8
    for shape in ((20, 100), (66, 520)):
        x = np.random.default_rng(per).standard_normal(shape).astype(ml_dtypes.bfloat16)
        wide = x.astype(np.float32)
        scale = np.maximum(blocks(abs(wide), per) / np.float32(448), np.float32(1e-12))
        wanted = round_float(wide / spread(scale, per, shape[1]), DTYPES["f8e4m3"])
        for run in (kernel.reference, kernel.simulate):
            y, s = np.zeros(shape, ml_dtypes.float8_e4m3fn), np.zeros(scale.shape, np.float32)
            run(x, y, s)
            assert np.array_equal(s, scale)
            assert np.array_equal(y.view(np.uint8), wanted.view(np.uint8))


def test_mxfp8() -> None:
    x = np.random.default_rng(0).standard_normal((8, 160)).astype(ml_dtypes.bfloat16)
    top = blocks(abs(x.astype(np.float32)), 32)
    scale = 2.0 ** (np.floor(np.log2(top)) - 8)
    kernel = parse("@kernel" + MXFP8).mxfp8
    for run in (kernel.reference, kernel.simulate):
        y, s = np.zeros(x.shape, ml_dtypes.float8_e4m3fn), np.zeros((8, 5), np.uint8)
        run(x, y, s.view(ml_dtypes.float8_e8m0fnu))
        assert np.array_equal(s, np.log2(scale) + 127)
        wanted = round_float(x.astype(np.float32) / spread(scale, 32, 160), DTYPES["f8e4m3"])
        assert np.array_equal(y.view(np.uint8), wanted.view(np.uint8))


WALKED = """
@kernel
def total(X: i32[M, N], Y: i32[M]):
    for m in tiles(M):
        acc = zeros(i32[m])
        for n in tiles(N):
            x = X[m, n]
            acc += sum(max(x, over=n, per=16) - min(x, over=n, per=8), over=n)
        Y[m] = acc
"""


def test_in_a_loop_that_walks_the_axis() -> None:
    kernel = parse(WALKED).total
    x = np.random.default_rng(0).integers(-99, 99, (70, 200)).astype(np.int32)
    high, low = blocks(x, 16), blocks(x, 8, "min")
    wanted = (spread(high, 16, 200) - spread(low, 8, 200)).sum(1)
    given = None, Schedule(tile=dict(m=64, n=16)), Schedule(tile=dict(m=64, n=48))
    for run in (kernel.reference, *(partial(kernel.simulate, schedule=s) for s in given)):
        y = np.zeros(70, np.int32)
        run(x, y)
        assert np.array_equal(y, wanted)
    with pytest.raises(ScheduleError, match="must be a multiple of 16"):
        kernel.compile(schedule=Schedule(tile=dict(m=64, n=24)))


EPILOGUE = matmul_text(
    "gemm(A: bf16[M, K], B: bf16[N, K], Y: f8e4m3[M, N], S: f32[M, NB])",
    "A[m, k] @ B[n, k]",
    "s = max(max(abs(acc), over=n, per=128) / 448.0, 1e-12)",
    "Y[m, n] = acc / s",
    "S[m, index(n) // 128] = s",
)


def test_behind_a_product() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (n, 64)).astype(ml_dtypes.bfloat16) for n in (70, 200))
    wide = a.astype(np.float32) @ b.astype(np.float32).T
    scale = np.maximum(blocks(abs(wide), 128) / np.float32(448), np.float32(1e-12))
    kernel = parse(EPILOGUE).gemm
    for run in (kernel.reference, kernel.simulate):
        y, s = np.zeros(wide.shape, ml_dtypes.float8_e4m3fn), np.zeros((70, 2), np.float32)
        run(a, b, y, s)
        assert np.array_equal(s, scale)


def compiled(text: str) -> Any:
    (kernel,) = vars(parse(text)).values()
    return kernel.compile()


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        (of_blocks(48), CompileError, "blocks of 48 are not lowered"),
        (of_blocks(512), CompileError, "blocks of 512 are not lowered"),
        (
            of_blocks(32).replace("m, n in tiles(M, N)", "m in tiles(M)").replace(
                "        x =", "      for n in tiles(N, by=48):\n        x ="),
            TypeCheckError, "tiles of 48 along `n` may cut a block of 32",
        ),
        (
            WALKED.replace("tiles(N)", "tiles(3, N, of=N)"),
            TypeCheckError, "a part of N along",
        ),
    ],
)  # fmt: skip
def test_rejected(text: str, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        compiled(text)


ONE_OF_A_BLOCK = """
@kernel
def last(X: f32[M, N], S: f32[M, NB]):
    for m, n in tiles(M, N):
        S[m, index(n) // 32] = X[m, n] * 2.0
"""


def test_the_last_of_a_block_stays_and_tiles_do_not_cut_it() -> None:
    kernel = parse(ONE_OF_A_BLOCK).last
    x = np.random.default_rng(0).standard_normal((9, 100)).astype(np.float32)
    for run in (kernel.reference, kernel.simulate):
        s = np.zeros((9, 4), np.float32)
        run(x, s)
        assert np.array_equal(s, 2 * x[:, [31, 63, 95, 99]])
    with pytest.raises(ScheduleError, match="must be a multiple of 32"):
        kernel.compile(schedule=Schedule(tile=dict(m=64, n=16)))


ROWS = """
@kernel
def scaled(X: f32[M, N], S: f32[M, NB]):
    for m in tiles(M):
        total = zeros(f32[m])
        for n in tiles(N):
            total += sum(X[m, n], over=n)
        for n in tiles(N):
            S[m, index(n) // 32] = max(X[m, n] / total, over=n, per=32)
"""


def test_of_rows_that_are_held() -> None:
    """A loop that is split has another axis: blocks go along the one that replaces both."""
    kernel = parse(ROWS).scaled
    x = np.random.default_rng(0).integers(1, 9, (5, 2048)).astype(np.float32)
    wanted = blocks(x / x.sum(1, keepdims=True), 32)
    s = np.zeros((5, 64), np.float32)
    kernel.simulate(x, s)
    np.testing.assert_allclose(s, wanted, rtol=1e-6)
    with pytest.raises(ScheduleError, match="a store of one element per block of `n`"):
        kernel.compile(schedule=Schedule(tile=dict(m=64, n=128)))
    with pytest.raises(ScheduleError, match="2 consumers split 32 columns, and so blocks of 32"):
        kernel.compile(schedule=Schedule(tile=dict(m=128), consumers=2), M=4, N=32, NB=1)
