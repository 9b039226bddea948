"""Functions of integers, and that integers wrap: exact, and the same under every schedule."""

import numpy as np
import pytest

from wsdsl import Schedule, parse

DROPOUT = """
@kernel
def f(X: f32[M, N], Y: f32[M, N], seed: u32):
    for m, n in tiles(M, N):
        h = (cast(index(m), u32) * 0x9E3779B9 + cast(index(n), u32)) ^ seed
        h = (h ^ (h >> 16)) * 0x7FEB352D
        h = (h ^ (h >> 15)) * 0x846CA68B
        Y[m, n] = where((h ^ (h >> 16)) < 0x40000000, 0.0, X[m, n] * 1.3333334)
"""


def test_dropout_by_hash() -> None:
    kernel, (rows, columns) = parse(DROPOUT).f, (70, 90)
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    m, n = (np.arange(k, dtype=np.uint32) for k in (rows, columns))
    h = (m[:, None] * np.uint32(0x9E3779B9) + n) ^ np.uint32(0xDEADBEEF)
    h = (h ^ (h >> 16)) * np.uint32(0x7FEB352D)
    h = (h ^ (h >> 15)) * np.uint32(0x846CA68B)
    wanted = np.where(h ^ (h >> 16) < 0x40000000, 0, x * np.float32(1.3333334))
    assert 0.2 < (wanted == 0).mean() < 0.3
    for run in (kernel.reference, kernel.simulate):
        y = np.zeros_like(x)
        run(x, y, 0xDEADBEEF)
        assert np.array_equal(y, wanted)
    narrow = np.zeros_like(x)
    kernel.simulate(x, narrow, 0xDEADBEEF, schedule=Schedule(tile=dict(m=64, n=32)))
    assert np.array_equal(narrow, wanted)


WIDE = """
@kernel
def f(A: {t}[M], B: {t}[M], H: {t}[M], P: i32[M], S: {t}[M], L: {t}[M], R: {t}[M]):
    for m in tiles(M):
        H[m] = mulhi(A[m], B[m])
        P[m] = popcount(A[m])
        S[m] = A[m] * B[m] - B[m] + 3
        L[m] = A[m] << B[m]
        R[m] = A[m] >> B[m]
"""


@pytest.mark.parametrize("dtype", ["i32", "u32"])
def test_of_32_bits(dtype: str) -> None:
    held = np.dtype(dtype.replace("32", "4"))
    limits = np.iinfo(held)
    odd = [limits.min, limits.max, 0, 1, 7, 31, 32, 33, 0x7FEB352D] + [-1, -7] * (limits.min < 0)
    a, b = (x.astype(held).ravel() for x in np.meshgrid(odd, odd))
    low, pairs = limits.min, [(int(x), int(y)) for x, y in zip(a, b)]
    out = [0 if 0 <= y < 32 else 1 for _, y in pairs]
    wanted = [
        [x * y >> 32 for x, y in pairs],
        [(x & 0xFFFFFFFF).bit_count() for x, _ in pairs],
        [(x * y - y + 3 - low) % 2**32 + low for x, y in pairs],
        [0 if o else ((x << y) - low) % 2**32 + low for (x, y), o in zip(pairs, out)],
        [(-1 if x < 0 else 0) if o else x >> y for (x, y), o in zip(pairs, out)],
    ]
    kernel = parse(WIDE.format(t=dtype)).f
    for run in (kernel.reference, kernel.simulate):
        made = [np.zeros_like(a) if i != 1 else np.zeros(a.size, np.int32) for i in range(5)]
        run(a, b, *made)
        assert [x.tolist() for x in made] == wanted


COUNTS = """
@kernel
def f(A: {t}[M, N], P: i32[M, N]):
    for m, n in tiles(M, N):
        P[m, n] = popcount(A[m, n])
"""


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "bool"])
def test_bits_of_any_width(dtype: str) -> None:
    held = np.dtype(dict(i8="i1", u8="u1", i16="i2", bool="?")[dtype])
    x = np.arange(256).reshape(4, 64).astype(held)
    bits = 8 * held.itemsize if dtype != "bool" else 1
    wanted = [[(int(v) & (1 << bits) - 1).bit_count() for v in row] for row in x]
    kernel = parse(COUNTS.format(t=dtype)).f
    for run in (kernel.reference, kernel.simulate):
        made = np.zeros(x.shape, np.int32)
        run(x, made)
        assert made.tolist() == wanted


INDICES = """
@kernel
def f(T: i32[K], Y: i32[N], Z: i32[N]):
    for n in tiles(N):
        Y[n] = (index(n) * 500000003) % 10
        Z[n] = T[index(n) * 500000003]
"""


def test_products_of_indices_wrap() -> None:
    """One that is negative then is in no tensor."""
    kernel, size = parse(INDICES).f, 300
    table = np.arange(1, 101, dtype=np.int32)
    wrapped = (np.arange(size) * 500000003).astype(np.int32)
    inside = (wrapped >= 0) & (wrapped < 100)
    for run in (kernel.reference, kernel.simulate):
        y, z = np.zeros(size, np.int32), np.zeros(size, np.int32)
        run(table, y, z)
        assert np.array_equal(y, wrapped % 10)
        assert np.array_equal(z, np.where(inside, table[np.where(inside, wrapped, 0)], 0))
    assert inside.any() and (wrapped < 0).any()
