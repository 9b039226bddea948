"""Products whose operands have scales for each of their blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.case_table import Case

SCALED: dict[str, Case] = {}


def kept(name: str, text: str, **sizes: int) -> Any:
    def keep(expected: Any) -> Any:
        SCALED[name] = Case(text, expected, sizes)
        return expected

    return keep


def by_blocks(x: Any, scale: Any, block: int = 32) -> Any:
    return x * scale[:, np.arange(x.shape[1]) // block]


@kept(
    "mx",
    """
@kernel
def mx(
    A: f8e4m3[M, K], B: f8e4m3[N, K], a_scale: f8e8m0[M, KB], b_scale: f8e8m0[N, KB], C: f32[M, N]
):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            b = B[n, k] * b_scale[n, index(k) // 32]
            acc += (A[m, k] * a_scale[m, index(k) // 32]) @ b
        C[m, n] = acc
""",
    M=140, N=72, K=336, KB=11,
)  # fmt: skip
def _(A: Any, B: Any, a_scale: Any, b_scale: Any) -> Any:
    return {"C": by_blocks(A, a_scale) @ by_blocks(B, b_scale).T}


@kept(
    "mx_gated",
    """
@kernel
def mx_gated(
    A: f8e4m3[M, K], B: f8e5m2[N, K], D: f8e4m3[N, K],
    a_scale: f8e8m0[M, KB], b_scale: f8e8m0[N, KB], d_scale: f8e8m0[N, KB], C: bf16[M, N]
):
    for m, n in tiles(M, N):
        x, y = zeros(f32[m, n]), zeros(f32[m, n])
        for k in tiles(K):
            a = A[m, k] * a_scale[m, index(k) // 32]
            x += a @ (B[n, k] * b_scale[n, index(k) // 32])
            y += a @ (D[n, k] * d_scale[n, index(k) // 32])
        C[m, n] = x * sigmoid(y)
""",
    M=40, N=136, K=272, KB=12,
)  # fmt: skip
def _(A: Any, B: Any, D: Any, a_scale: Any, b_scale: Any, d_scale: Any) -> Any:
    a = by_blocks(A, a_scale)
    x, y = a @ by_blocks(B, b_scale).T, a @ by_blocks(D, d_scale).T
    with np.errstate(over="ignore"):
        return {"C": x / (1 + np.exp(-y))}


@kept(
    "mx_experts",
    """
@kernel
def mx_experts(
    A: f8e4m3[E, M, K], B: f8e4m3[E, N, K],
    a_scale: f8e8m0[E, M, KB], b_scale: f8e8m0[E, N, KB], C: f32[E, M, N]
):
    for e in each(E):
        for m, n in tiles(M, N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                a = A[e, m, k] * a_scale[e, m, index(k) // 32]
                acc += a @ (B[e, n, k] * b_scale[e, n, index(k) // 32])
            C[e, m, n] = acc
""",
    E=3, M=24, N=72, K=144, KB=16,
)  # fmt: skip
def _(A: Any, B: Any, a_scale: Any, b_scale: Any) -> Any:
    pairs = zip(A, a_scale, B, b_scale, strict=True)
    return {"C": np.stack([by_blocks(a, s) @ by_blocks(b, t).T for a, s, b, t in pairs])}
