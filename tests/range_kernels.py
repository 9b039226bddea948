"""Loops over a part of a dimension."""

from typing import Any

import numpy as np

from tests.case_table import CASES, case


@case(G=3, M=72, N=40, T=200)("""
def part(A: bf16[M, T], W: bf16[T, N], lo: i32[G], hi: i32[G], C: f32[G, M, N]):
    for g in each(G):
        for m, n in tiles(M, N):
            acc = zeros(f32[m, n])
            for k in tiles(lo[g], hi[g], of=T):
                acc += A[m, k] @ W[k, n]
            C[g, m, n] = acc
""")
def part(A: Any, W: Any, lo: Any, hi: Any) -> Any:
    bounds = zip(lo.astype(int), hi.astype(int), strict=True)
    return {"C": np.stack([A[:, a : max(a, b)] @ W[a : max(a, b)] for a, b in bounds])}


CAUSAL = """
@kernel
def causal(Q: bf16[H, S, D], K: bf16[H, S, D], V: bf16[H, S, D], O: bf16[H, S, D], scale: f32):
    for h in each(H):
        for q in tiles(S):
            top, total, acc = full(f32[q], -inf), zeros(f32[q]), zeros(f32[q, D])
            for t in tiles(0, end(q), of=S):
                s = where(index(q) >= index(t), (Q[h, q, :] @ K[h, t, :]) * scale, -inf)
                new_top = max(top, max(s, over=t))
                p, shrink = exp2(s - new_top), exp2(top - new_top)
                total = total * shrink + sum(p, over=t)
                acc = acc * shrink + cast(p, bf16) @ V[h, t, :]
                top = new_top
            O[h, q, :] = acc / total
"""
PACKED = """
@kernel
def packed(Q: bf16[G, S, D], K: bf16[T, D], V: bf16[T, D], lo: i32[G], hi: i32[G],
           O: f32[G, S, D], scale: f32):
    for g in each(G):
        for q in tiles(S):
            top, total, acc = full(f32[q], -inf), zeros(f32[q]), zeros(f32[q, D])
            for t in tiles(lo[g], hi[g], of=T):
                s = (Q[g, q, :] @ K[t, :]) * scale
                new_top = max(top, max(s, over=t))
                p, shrink = exp2(s - new_top), exp2(top - new_top)
                total = total * shrink + sum(p, over=t)
                acc = acc * shrink + cast(p, bf16) @ V[t, :]
                top = new_top
            O[g, q, :] = acc / total
"""
RAGGED = (
    PACKED.replace("packed(Q: bf16[G, S, D]", "ragged(Q: bf16[T, D]")
    .replace("f32[G, S, D]", "f32[G, T, D]")
    .replace("tiles(S)", "tiles(lo[g], hi[g], of=T)")
    .replace("Q[g, q, :]", "Q[q, :]")
)
"""A group's queries are those of its own rows."""
ELEMENTS = """
@kernel
def elements(A: f32[M, T], lo: i32[G], hi: i32[G], S: f32[G, M], X: f32[M, T], C: bf16[G, M, T]):
    for g in each(G):
        for m in tiles(M):
            top = full(f32[m], -inf)
            for t in tiles(lo[g], hi[g], of=T):
                top = max(top, max(A[m, t], over=t))
                C[g, m, t] = A[m, t] * 2
                X[m, t] += A[m, t]
            S[g, m] = top
"""
TEXTS = dict(causal=CAUSAL, packed=PACKED, ragged=RAGGED, elements=ELEMENTS)
TEXTS["part"] = CASES["part"].text
