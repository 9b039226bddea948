"""Division by 0, and of the lowest number by -1, which the hardware leaves open."""

import numpy as np
import pytest

from wsdsl import Schedule, parse

KERNEL = """
@kernel
def f(A: {dtype}[M], B: {dtype}[M], Q: {dtype}[M], R: {dtype}[M]):
    for m in tiles(M):
        Q[m] = A[m] // B[m]
        R[m] = A[m] % B[m]
"""
SCALARS = """
@kernel
def f(A: i32[M], d: i32, Q: i32[M], R: i32[M]):
    for m in tiles(M):
        Q[m] = A[m] // d
        R[m] = A[m] % d
"""


def expected(a: int, b: int, bits: int, signed: bool) -> tuple[int, int]:
    if b == 0:
        return 0, 0
    low = 1 << bits - 1 if signed else 0
    return (a // b + low) % (1 << bits) - low, a % b


@pytest.mark.parametrize("dtype", ["i32", "u32", "i8"])
def test_of_tiles(dtype: str) -> None:
    held = np.dtype(dict(i32="i4", u32="u4", i8="i1")[dtype])
    limits = np.iinfo(held)
    odd = [limits.min, limits.max, 0, 1, 7] + [-1, -7] * (limits.min < 0)
    a, b = (x.astype(held).ravel() for x in np.meshgrid(odd, odd))
    kernel = parse(KERNEL.format(dtype=dtype)).f
    wanted = [expected(int(x), int(y), limits.bits, limits.min < 0) for x, y in zip(a, b)]
    for run in (kernel.reference, kernel.simulate):
        q, r = np.zeros_like(a), np.zeros_like(a)
        run(a, b, q, r)
        assert list(zip(q.tolist(), r.tolist(), strict=True)) == wanted


@pytest.mark.parametrize("divisor", [0, -1, 3])
def test_of_scalars(divisor: int) -> None:
    kernel = parse(SCALARS).f
    a = np.array([-(2**31), -5, 0, 5], np.int32)
    wanted = [expected(int(x), divisor, 32, True) for x in a]
    for run in (kernel.reference, kernel.simulate):
        q, r = np.zeros_like(a), np.zeros_like(a)
        run(a, divisor, q, r)
        assert list(zip(q.tolist(), r.tolist(), strict=True)) == wanted


def test_division_by_nonzero_has_no_check() -> None:
    kernel = parse(KERNEL.format(dtype="i32").replace("B[m]", "128")).f
    assert "where" not in kernel._compile(Schedule(), {}, ()).ir("scheduled")
