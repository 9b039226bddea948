"""Products whose operands are computed, of other products too."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.case_table import case

ATTENTION = """
@kernel
def attention(Q: bf16[H, S, D], K: bf16[H, T, D], V: bf16[H, T, D], O: bf16[H, S, D], scale: f32):
    for h in each(H):
        for q in tiles(S):
            top, total, acc = full(f32[q], -inf), zeros(f32[q]), zeros(f32[q, D])
            for t in tiles(T):
                s = (Q[h, q, :] @ K[h, t, :]) * scale
                new_top = max(top, max(s, over=t))
                p, shrink = exp2(s - new_top), exp2(top - new_top)
                total = total * shrink + sum(p, over=t)
                acc = acc * shrink + cast(p, bf16) @ V[h, t, :]
                top = new_top
            O[h, q, :] = acc / total
"""


@case("attention", ATTENTION, H=2, S=136, T=100, D=64)
def _(Q: Any, K: Any, V: Any, scale: Any) -> Any:
    s = np.einsum("hsd,htd->hst", Q, K) * scale
    p = np.exp2(s - s.max(-1, keepdims=True))
    return {"O": np.einsum("hst,htd->hsd", p / p.sum(-1, keepdims=True), V)}


@case(
    "widened",
    """
@kernel
def widened(X: bf16[N, K], W: i8[M, K], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[n, k] @ cast(W[m, k], bf16)
        Y[m, n] = acc
""",
    M=40, N=136, K=200,
)  # fmt: skip
def _(X: Any, W: Any) -> Any:
    return {"Y": W @ X.T}


@case(
    "beyond_the_end",
    """
@kernel
def beyond_the_end(A: f16[M, K], B: f16[K, N], s: f16[K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            x = A[m, k]
            if s[0] > 0:
                x = x / abs(x)
            acc += (x + s[k]) @ B[k, n]
        C[m, n] = acc
""",
    M=72, N=136, K=100,
)  # fmt: skip
def _(A: Any, B: Any, s: Any) -> Any:
    x = np.sign(A) if s[0] > 0 else A
    return {"C": (x + s).astype(np.float16).astype(np.float64) @ B}


@case(
    "two_links",
    """
@kernel
def two_links(X: bf16[M, K], U: bf16[H, K], G: bf16[H, K], D: bf16[N, H], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for h in tiles(H):
            up, gate = zeros(f32[m, h]), zeros(f32[m, h])
            for k in tiles(K):
                up += X[m, k] @ U[h, k]
                gate += X[m, k] @ G[h, k]
            acc += cast(up * relu(gate), bf16) @ D[n, h]
        Y[m, n] = acc
""",
    M=72, N=136, K=100, H=72,
)  # fmt: skip
def _(X: Any, U: Any, G: Any, D: Any) -> Any:
    return {"Y": ((X @ U.T) * np.maximum(X @ G.T, 0)) @ D.T}
