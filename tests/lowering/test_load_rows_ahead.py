"""Rows that replace weights (outliers): results, and checks of their loads and strides."""

import re
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from wsdsl import Schedule, parse
from wsdsl.artifact.signature import StrideArgument
from wsdsl.diagnostics import LaunchError, VerifyError
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.types import DTYPES
from wsdsl.ir.verify.verifier import verify
from wsdsl.runtime.arrays.views import ArrayView
from wsdsl.runtime.packed_arguments import argument_bytes

TEXT = """
@kernel
def chosen(X: bf16[M, K], W: i8[N, K], at: i32[N, G], V: bf16[R, 64], Y: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K, by=64):
            place = at[n, index(k) // 64]
            acc += X[m, k] @ where(place >= 0, V[place, index(k) % 64], cast(W[n, k], bf16))
        Y[m, n] = acc
"""
SCHEDULE = Schedule(consumers=1, operand_transform="registers", tile=dict(m=16, n=64, k=64))


def kernel_of(text: str = TEXT) -> Any:
    (own,) = vars(parse(text)).values()
    return own


def test_right_where_every_row_may_be_taken() -> None:
    """Nothing is read of what is not asked for: the simulator makes it NaN."""
    rng = np.random.default_rng(0)
    x = rng.integers(-8, 9, (20, 256)).astype(ml_dtypes.bfloat16)
    v = rng.integers(-8, 9, (9, 64)).astype(ml_dtypes.bfloat16)
    w = rng.integers(-128, 128, (100, 256)).astype(np.int8)
    at = rng.integers(-9, 9, (100, 4)).astype(np.int32)
    whole = w.astype(np.float64).reshape(100, 4, 64)
    whole[at >= 0] = v.astype(np.float64)[at[at >= 0]]
    wanted = x.astype(np.float64) @ whole.reshape(100, 256).T
    for decode in ("registers", "shared"):
        got = kernel_of().simulate(x, w, at, v, None, schedule=Schedule(operand_transform=decode))
        assert np.array_equal(got, wanted)
        sizes = dict(M=20, N=100, K=256, G=4, R=9)
        assert kernel_of().compile(Schedule(operand_transform=decode), **sizes).prove()


def test_rows_are_told_by_bools() -> None:
    made = kernel_of().compile(SCHEDULE, M=16, N=128, K=256).scheduled
    columns = re.search(r"(%\w+): \S+ = iota", str(made))
    assert columns
    text = re.sub(r"only=%\w+", f"only={columns[1]}", str(made))
    with pytest.raises(VerifyError, match="expected one bool per row"):
        verify(parse_kernel(text))


def test_lines_of_such_rows_have_their_distance_in_the_code() -> None:
    """One whose lines lie otherwise is refused at launch."""
    made = kernel_of().compile(SCHEDULE, M=16, N=128, K=256)
    (stride,) = (
        a for a in made.signature.arguments if isinstance(a, StrideArgument) and a.tensor == "V"
    )
    assert stride.known == 64 and "%stride.V" not in made.llvm.split("entry:")[1]
    dense, apart = (ArrayView(0, DTYPES["bf16"], (9, 64), (n, 1), "cpu") for n in (64, 128))
    assert argument_bytes(stride, {"V": dense}, {}, {}, lambda _: b"") == struct.pack("<q", 64)
    with pytest.raises(LaunchError, match=r"V has row stride 128, expected 64"):
        argument_bytes(stride, {"V": apart}, {}, {}, lambda _: b"")


def test_rows_of_bytes_are_chosen_by_words() -> None:
    """As those of 16 bits, of upper bytes that make floats with lower ones."""
    text = TEXT.replace("V: bf16[R, 64]", "L: u8[N, K], V: u8[R, 64]")
    text = text.replace("cast(W[n, k], bf16))", "bitcast(W[n, k], u8))")
    choice = "where(place >= 0, V[place, index(k) % 64], bitcast(W[n, k], u8))"
    joined = "bitcast(cast(high, u16) << 8 | cast(L[n, k], u16), bf16)"
    whole = f"high = {choice}\n            acc += X[m, k] @ {joined}"
    text = text.replace(f"acc += X[m, k] @ {choice}", whole)
    rng = np.random.default_rng(0)
    x = rng.integers(-8, 9, (20, 256)).astype(ml_dtypes.bfloat16)
    high, v = (rng.integers(0x3E, 0x42, shape).astype(np.uint8) for shape in ((100, 256), (9, 64)))
    low = rng.integers(0, 2, (100, 256)).astype(np.uint8) * 128
    at = rng.integers(-9, 9, (100, 4)).astype(np.int32)
    chosen = high.reshape(100, 4, 64).copy()
    chosen[at >= 0] = v[at[at >= 0]]
    bits = chosen.reshape(100, 256).astype(np.uint16) << 8 | low
    wanted = x.astype(np.float64) @ bits.view(ml_dtypes.bfloat16).astype(np.float64).T
    arrays = x, high.view(np.int8), at, low, v
    for decode in ("registers", "shared"):
        got = kernel_of(text).simulate(*arrays, None, schedule=Schedule(operand_transform=decode))
        assert np.array_equal(got, wanted)


def test_pieces_of_rows_by_one_condition() -> None:
    """It is loaded an iteration ahead, and each piece's rows behind it."""
    kernel = parse("""
@kernel
def chosen(A: bf16[K, M], P: bool[K], V: bf16[L, K], W: bf16[K, L], S: bf16[N, L], Y: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for l in tiles(L):
            s = zeros(f32[m, l])
            for k in tiles(K):
                s += A[k, m] @ relu(where(P[k], V[l, k], W[k, l]))
            acc += cast(s, bf16) @ S[n, l]
        Y[m, n] = acc
""").chosen
    rng = np.random.default_rng(0)
    drawn = (rng.integers(-1, 2, shape) for shape in ((128, 3), (72, 128), (128, 72), (1, 72)))
    a, v, w, s = (x.astype(ml_dtypes.bfloat16) for x in drawn)
    p, y = rng.integers(0, 2, 128).astype(bool), np.zeros((3, 1), np.float32)
    kernel.simulate(a, p, v, w, s, y)
    b = np.maximum(np.where(p[:, None], v.T, w), 0).astype(np.float64)
    assert np.array_equal(y, (a.astype(np.float64).T @ b) @ s.astype(np.float64).T)
