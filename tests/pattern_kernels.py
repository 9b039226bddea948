"""The patterns of `patterns.py`, by name."""

import ml_dtypes
import numpy as np

from benchmarks.pattern_texts import TEXTS
from tests.patterns import (
    Pattern,
    added,
    bf16,
    causal_conv,
    causal_softmax,
    f32,
    group_norm,
    ints,
    rope,
    sigmoid,
)

PATTERNS = {
    "rope": Pattern(
        TEXTS["rope"],
        lambda r: (bf16(r, 33, 3, 2, 40), f32(r, 33, 40), f32(r, 33, 40)),
        lambda x, c, s: (rope(x, c, s),),
        dict(S=4096, H=32, D=64),
    ),
    "rope of neighbours": Pattern(
        TEXTS["rope_of_neighbours"],
        lambda r: (bf16(r, 33, 3, 40, 2), f32(r, 33, 40), f32(r, 33, 40)),
        lambda x, c, s: (np.moveaxis(rope(np.moveaxis(x, 3, 2), c, s), 2, 3),),
        dict(S=4096, H=32, D=64),
    ),
    "swiglu": Pattern(
        TEXTS["swiglu"],
        lambda r: (bf16(r, 70, 2, 136),),
        lambda x: (x[:, 0] * sigmoid(x[:, 0]) * x[:, 1],),
        dict(M=8192, N=4096),
    ),
    "swiglu of a row's halves": Pattern(
        TEXTS["swiglu_of_halves"],
        lambda r: (bf16(r, 9, 140),),
        lambda x: (x[:, :70] * sigmoid(x[:, :70]) * x[:, 70:],),
        dict(M=8192, N=4096, W=8192),
    ),
    "swiglu backward": Pattern(
        """
def swiglu_backward(D: bf16[M, N], G: bf16[M, N], U: bf16[M, N], DG: f32[M, N], DU: f32[M, N]):
    for m, n in tiles(M, N):
        g, d = cast(G[m, n], f32), cast(D[m, n], f32)
        s = sigmoid(g)
        DU[m, n] = d * g * s
        DG[m, n] = d * U[m, n] * s * (1.0 + g * (1.0 - s))
""",
        lambda r: (bf16(r, 9, 136), bf16(r, 9, 136), bf16(r, 9, 136)),
        lambda d, g, u: (d * u * sigmoid(g) * (1 + g * (1 - sigmoid(g))), d * g * sigmoid(g)),
        dict(M=8192, N=4096),
    ),
    "groupnorm": Pattern(
        TEXTS["groupnorm"],
        lambda r: (bf16(r, 6, 4 * 35), f32(r, 3, 4), f32(r, 3, 4), 35),
        lambda x, w, b, _: (group_norm(x, w, b),),
        dict(R=1024, L=16384, G=32, C=16),
    ),
    "batchnorm": Pattern(
        TEXTS["batchnorm"],
        lambda r: (bf16(r, 130, 136),),
        lambda x: ((x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5),),
        dict(M=8192, N=4096),
    ),
    "causal softmax": Pattern(
        """
def causal_softmax(X: f32[M, N], Y: f32[M, N]):
    for m in tiles(M):
        most = full(f32[m], -inf)
        total = zeros(f32[m])
        for n in tiles(0, end(m), of=N):
            x = where(index(n) <= index(m), X[m, n], -inf)
            before = most
            most = max(most, max(x, over=n))
            total = total * exp(before - most) + sum(exp(x - most), over=n)
        for n in tiles(N):
            Y[m, n] = where(index(n) <= index(m), exp(X[m, n] - most) / total, 0.0)
""",
        lambda r: (f32(r, 140, 140),),
        lambda x: (causal_softmax(x),),
        dict(M=8192, N=8192),
    ),
    "causal convolution": Pattern(
        """
def convolution(X: bf16[S, D], W: f32[3, D], Y: bf16[S, D]):
    for s, d in tiles(S, D):
        at = index(s)
        y = X[s, d] * W[2, d] + X[at - 1, d] * W[1, d] + X[at - 2, d] * W[0, d]
        Y[s, d] = silu(y)
""",
        lambda r: (bf16(r, 70, 136), f32(r, 3, 136)),
        lambda x, w: (causal_conv(x, w),),
        dict(S=8192, D=4096),
    ),
    "adamw, in place": Pattern(
        """
def adamw(G: bf16[N], lr: f32, P: f32[N], A: f32[N], V: f32[N]):
    for n in tiles(N):
        g = cast(G[n], f32)
        a = A[n] * 0.9 + g * 0.1
        v = V[n] * 0.99 + g * g * 0.01
        A[n] = a
        V[n] = v
        P[n] = P[n] * (1.0 - lr * 0.1) - lr * a / (sqrt(v) + 1e-3)
""",
        lambda r: (bf16(r, 1001), 0.5),
        lambda g, lr: (-lr * g * 0.1 / (0.1 * abs(g) + 1e-3), g * 0.1, g * g * 0.01),
        dict(N=1 << 26),
    ),
    "transpose": Pattern(
        """
def transpose(X: bf16[M, N], Y: bf16[N, M]):
    for m, n in tiles(M, N):
        Y[n, m] = X[m, n]
""",
        lambda r: (bf16(r, 70, 201),),
        lambda x: (x.T,),
        dict(M=8192, N=8192),
        exact=True,
    ),
    "heads in front of places": Pattern(
        """
def permuted(X: bf16[B, S, H, D], Y: bf16[B, H, S, D]):
    for b, h in each(B, H):
        for s, d in tiles(S, D):
            Y[b, h, s, d] = X[b, s, h, d]
""",
        lambda r: (bf16(r, 2, 33, 3, 40),),
        lambda x: (x.transpose(0, 2, 1, 3),),
        dict(B=4, S=4096, H=32, D=128),
        exact=True,
    ),
    "last axis first": Pattern(
        """
def permuted(X: f8e4m3[A, B, C], Y: f8e4m3[C, A, B]):
    for a in each(A):
        for b, c in tiles(B, C):
            Y[c, a, b] = X[a, b, c]
""",
        lambda r: (f32(r, 3, 33, 40).astype(ml_dtypes.float8_e4m3fn),),
        lambda x: (x.transpose(2, 0, 1),),
        dict(A=64, B=512, C=512),
        exact=True,
    ),
    "mirrored": Pattern(
        """
def mirrored(X: bf16[M, N], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = X[m, N - 1 - index(n)]
""",
        lambda r: (bf16(r, 9, 201),),
        lambda x: (x[:, ::-1],),
        dict(M=8192, N=8192),
        exact=True,
    ),
    "beside each other": Pattern(
        """
def concatenated(A: bf16[M, N], B: bf16[M, K], Y: bf16[M, W]):
    for m in tiles(M):
        for n in tiles(N):
            Y[m, index(n)] = A[m, n]
        for k in tiles(K):
            Y[m, index(k) + N] = B[m, k]
""",
        lambda r: (bf16(r, 9, 72), bf16(r, 9, 64)),
        lambda a, b: (np.concatenate([a, b], 1),),
        dict(M=8192, N=4096, K=1024, W=5120),
        exact=True,
    ),
    "embedding": Pattern(
        TEXTS["embedding"],
        lambda r: (bf16(r, 500, 136), ints(r, 500, 70)),
        lambda t, ids: (t[ids],),
        dict(V=128256, M=8192, N=4096),
        exact=True,
    ),
    "embedding backward": Pattern(
        TEXTS["scatter_add"],
        lambda r: (bf16(r, 70, 136), ints(r, 20, 70)),
        lambda d, ids: (added((20, 136), ids, d),),
        dict(V=128256, M=8192, N=4096),
    ),
    "experts' results together": Pattern(
        """
def combined(X: bf16[T, N], rows: i32[M, E], W: f32[M, E], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        y = zeros(f32[m, n])
        for e in each(E):
            y += X[rows[m, e], n] * W[m, e]
        Y[m, n] = y
""",
        lambda r: (bf16(r, 140, 136), ints(r, 140, 70, 2), f32(r, 70, 2)),
        lambda x, rows, w: ((x[rows] * w[..., None]).sum(1),),
        dict(T=65536, M=8192, N=4096, E=8),
    ),
    "elements of rows": Pattern(
        """
def taken(X: bf16[M, N], at: i32[M, K], Y: bf16[M, K]):
    for m, k in tiles(M, K):
        Y[m, k] = X[m, at[m, k]]
""",
        lambda r: (bf16(r, 9, 201), ints(r, 201, 9, 40)),
        lambda x, at: (np.take_along_axis(x, at, 1),),
        dict(M=8192, N=8192, K=1024),
        exact=True,
    ),
    "histogram": Pattern(
        TEXTS["histogram"],
        lambda r: (ints(r, 64, 1000),),
        lambda x: (np.bincount(x, minlength=64),),
        dict(N=1 << 24, B=64),
        exact=True,
    ),
    "sums of columns": Pattern(
        """
def sums(X: bf16[M, N], S: f32[N]):
    for n in tiles(N):
        total = zeros(f32[n])
        for m in tiles(M):
            total += sum(cast(X[m, n], f32), over=m)
        S[n] = total
""",
        lambda r: (bf16(r, 300, 136),),
        lambda x: (x.sum(0),),
        dict(M=8192, N=4096),
    ),
    "sums of all": Pattern(
        """
def sums(X: bf16[M, N], W: f32[M], Y: bf16[M, N], R: f32[M], S: f32[1]):
    for m, n in tiles(M, N):
        y = X[m, n] * W[m]
        Y[m, n] = y
        r = sum(y, over=n)
        R[m] += r
        S[0] += sum(r * cast(index(m), f32), over=m) + sum(sum(y, over=m), over=n)
""",
        lambda r: (bf16(r, 37, 301), f32(r, 37) / 256),
        lambda x, w: (
            x * w[:, None],
            (x * w[:, None]).sum(1),
            np.array([((x * w[:, None]).sum(1) * np.arange(1, 38)).sum()]),
        ),
        dict(M=8192, N=4096),
    ),
    "sums of segments": Pattern(
        """
def sums(X: bf16[T, N], first: i32[F], S: f32[G, N]):
    for g in each(G):
        for n in tiles(N):
            total = zeros(f32[n])
            for t in tiles(first[g], first[g + 1], of=T):
                total += sum(cast(X[t, n], f32), over=t)
            S[g, n] = total
""",
        lambda r: (bf16(r, 140, 136), np.array([0, 10, 10, 140], np.int32)),
        lambda x, _: (np.stack([x[:10].sum(0), 0 * x[0], x[10:].sum(0)]),),
        dict(T=16384, N=4096, G=64, F=65),
    ),
}
