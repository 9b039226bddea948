"""Patterns, each with something odd: mixed types, rows without elements that count, ties,
rows of two lengths, sums of integers.
"""

import numpy as np

from tests.patterns import Pattern, bf16, f32, ints


def _masked_log_softmax(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    total = np.where(mask > 0, np.exp(x), 0).sum(1, keepdims=True)
    with np.errstate(divide="ignore"):
        return np.where(mask > 0, x - np.log(total), -np.inf)


def _masks(rng: np.random.Generator) -> np.ndarray:
    mask = rng.integers(0, 2, (9, 263)).astype(np.int8)
    mask[3] = 0
    return mask


ODD_PATTERNS = {
    "huber loss of mixed types": Pattern(
        """
def huber(P: bf16[M, N], T: f32[M, N], L: f32[M]):
    for m in tiles(M):
        s = zeros(f32[m])
        for n in tiles(N):
            d = abs(P[m, n] - T[m, n])
            s += sum(where(d < 1.0, 0.5 * d * d, d - 0.5), over=n)
        L[m] = s / cast(N, f32)
""",
        lambda r: (bf16(r, 29, 401), f32(r, 29, 401)),
        lambda p, t: (np.where(abs(p - t) < 1, 0.5 * (p - t) ** 2, abs(p - t) - 0.5).mean(1),),
        dict(M=16384, N=8192),
    ),
    "log softmax of masked rows": Pattern(
        """
def log_softmax(X: bf16[M, N], K: i8[M, N], Y: f32[M, N]):
    for m in tiles(M):
        top = full(f32[m], -inf)
        total = zeros(f32[m])
        for n in tiles(N):
            top = max(top, max(where(K[m, n] > 0, cast(X[m, n], f32), -inf), over=n))
        most = where(top == -inf, 0.0, top)
        for n in tiles(N):
            total += sum(where(K[m, n] > 0, exp(X[m, n] - most), 0.0), over=n)
        for n in tiles(N):
            Y[m, n] = where(K[m, n] > 0, X[m, n] - most - log(total), -inf)
""",
        lambda r: (bf16(r, 9, 263), _masks(r)),
        lambda x, mask: (_masked_log_softmax(x, mask),),
        dict(M=16384, N=4096),
    ),
    "the least of equal ones": Pattern(
        """
def least(X: i32[M, N], Y: i32[M], V: i32[M]):
    for m in tiles(M):
        best, at = full(i32[m], 2147483647), zeros(i32[m])
        for n in tiles(N):
            low = min(X[m, n], over=n)
            at = where(low < best, argmin(X[m, n], over=n), at)
            best = min(best, low)
        Y[m] = at
        V[m] = best
""",
        lambda r: (ints(r, 3, 21, 611),),
        lambda x: (x.argmin(1), x.min(1)),
        dict(M=16384, N=8192),
        exact=True,
    ),
    "rows of two lengths": Pattern(
        """
def crossed(X: bf16[M, N], Z: f32[M, L], Y: f32[M, N], U: f32[M, L]):
    for m in tiles(M):
        s, t = zeros(f32[m]), zeros(f32[m])
        for n in tiles(N):
            s += sum(cast(X[m, n], f32), over=n)
        for l in tiles(L):
            t += sum(Z[m, l], over=l)
        for n in tiles(N):
            Y[m, n] = X[m, n] - t / cast(L, f32)
        for l in tiles(L):
            U[m, l] = Z[m, l] - s / cast(N, f32)
""",
        lambda r: (bf16(r, 33, 100), f32(r, 33, 57)),
        lambda x, z: (x - z.mean(1, keepdims=True), z - x.mean(1, keepdims=True)),
        dict(M=16384, N=4096, L=2048),
    ),
    "integers up to each": Pattern(
        """
def before(X: i32[M, N], Y: i32[M, N]):
    for m in tiles(M):
        b = zeros(i32[m])
        for n in tiles(N):
            Y[m, n] = b + cumsum(X[m, n], over=n) - X[m, n]
            b += sum(X[m, n], over=n)
""",
        lambda r: (ints(r, 1 << 30, 7, 391),),
        lambda x: ((x.cumsum(1) - x).astype(np.int32),),
        dict(M=16384, N=8192),
        exact=True,
    ),
    "rows that are gathered": Pattern(
        """
def gathered(T: bf16[V, D], I: i32[M], Y: f32[M, D]):
    for m in tiles(M):
        s = zeros(f32[m])
        for d in tiles(D):
            x = cast(T[I[m], d], f32)
            s += sum(x * x, over=d)
        for d in tiles(D):
            Y[m, d] = T[I[m], d] * rsqrt(s / cast(D, f32) + 1e-6)
""",
        lambda r: (bf16(r, 50, 264), ints(r, 50, 33)),
        lambda t, i: (t[i] / np.sqrt((t[i] ** 2).mean(1, keepdims=True) + 1e-6),),
        dict(V=128256, D=4096, M=8192),
    ),
}
