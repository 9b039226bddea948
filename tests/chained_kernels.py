"""Products whose operands are computed, of other products too."""

from typing import Any

import numpy as np

from tests.case_table import CASES, case


@case(H=2, M=136, N=100, D=64)("""
def attention(Q: bf16[H, M, D], K: bf16[H, N, D], V: bf16[H, N, D], O: bf16[H, M, D], scale: f32):
    for h in each(H):
        for m in tiles(M):
            top, total, acc = full(f32[m], -inf), zeros(f32[m]), zeros(f32[m, D])
            for n in tiles(N):
                s = (Q[h, m, :] @ K[h, n, :]) * scale
                new_top = max(top, max(s, over=n))
                p, shrink = exp2(s - new_top), exp2(top - new_top)
                total = total * shrink + sum(p, over=n)
                acc = acc * shrink + cast(p, bf16) @ V[h, n, :]
                top = new_top
            O[h, m, :] = acc / total
""")
def attention(Q: Any, K: Any, V: Any, scale: Any) -> Any:
    s = np.einsum("hsd,htd->hst", Q, K) * scale
    p = np.exp2(s - s.max(-1, keepdims=True))
    return {"O": np.einsum("hst,htd->hsd", p / p.sum(-1, keepdims=True), V)}


ATTENTION = CASES["attention"].text


@case(M=40, N=136, K=200)("""
def widened(X: bf16[N, K], W: i8[M, K], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[n, k] @ cast(W[m, k], bf16)
        Y[m, n] = acc
""")
def widened(X: Any, W: Any) -> Any:
    return {"Y": W @ X.T}
