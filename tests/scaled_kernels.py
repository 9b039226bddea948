"""Products whose operands have scales for each of their blocks."""

from functools import partial
from typing import Any

import numpy as np

from tests.case_table import Case, case

SCALED: dict[str, Case] = {}
kept = partial(case, SCALED)


def by_blocks(x: Any, scale: Any, block: int = 32) -> Any:
    return x * scale[:, np.arange(x.shape[1]) // block]


@kept(M=140, N=72, K=336, KB=11)("""
def mx(
    A: f8e4m3[M, K], B: f8e4m3[N, K], a_scale: f8e8m0[M, KB], b_scale: f8e8m0[N, KB], C: f32[M, N]
):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            b = B[n, k] * b_scale[n, index(k) // 32]
            acc += (A[m, k] * a_scale[m, index(k) // 32]) @ b
        C[m, n] = acc
""")
def mx(A: Any, B: Any, a_scale: Any, b_scale: Any) -> Any:
    return {"C": by_blocks(A, a_scale) @ by_blocks(B, b_scale).T}


@kept(M=40, N=136, K=272, KB=12)("""
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
""")
def mx_gated(A: Any, B: Any, D: Any, a_scale: Any, b_scale: Any, d_scale: Any) -> Any:
    a = by_blocks(A, a_scale)
    x, y = a @ by_blocks(B, b_scale).T, a @ by_blocks(D, d_scale).T
    with np.errstate(over="ignore"):
        return {"C": x / (1 + np.exp(-y))}


@kept(E=3, M=24, N=72, K=144, KB=16)("""
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
""")
def mx_experts(A: Any, B: Any, a_scale: Any, b_scale: Any) -> Any:
    pairs = zip(A, a_scale, B, b_scale, strict=True)
    return {"C": np.stack([by_blocks(a, s) @ by_blocks(b, t).T for a, s, b, t in pairs])}


FP4 = """
@kernel
def {name}(
    A: f4e2m1[M, K], B: f4e2m1[N, K], a_scale: {scale}[M, KB], b_scale: {scale}[N, KB], C: f32[M, N]
):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            b = B[n, k] * b_scale[n, index(k) // {block}]
            acc += (A[m, k] * a_scale[m, index(k) // {block}]) @ b
        C[m, n] = acc
"""
for _name, _scale, _block in (
    ("mxf4", "f8e8m0", 32),
    ("mxf4_16", "f8e8m0", 16),
    ("nvf4", "f8e4m3", 16),
):

    def _of_fp4(A: Any, B: Any, a_scale: Any, b_scale: Any, block: int = _block) -> Any:
        return {"C": by_blocks(A, a_scale, block) @ by_blocks(B, b_scale, block).T}

    _text = FP4.format(name=_name, scale=_scale, block=_block)
    SCALED[_name] = Case(_text, _of_fp4, dict(M=140, N=72, K=608, KB=608 // _block))


def from_atoms(atoms: Any, rows: int, blocks: int) -> Any:
    i, j = np.arange(rows)[:, None], np.arange(blocks)[None, :]
    byte = 16 * (i % 32) + i // 32 % 4 * 4 + j % 4
    return atoms[i // 128, j // 4, byte // 256, byte % 256]


@kept(M=140, N=200, K=336, MA=2, NA=2, KA=3)("""
def mx_atoms(
    A: f8e4m3[M, K], B: f8e4m3[N, K], a_scale: f8e8m0[MA, KA, 2, 256],
    b_scale: f8e8m0[NA, KA, 2, 256], C: f32[M, N]
):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            i, j, b = index(m), index(n), index(k) // 32
            s = a_scale[i // 128, b // 4, i % 32 // 16, i % 16 * 16 + i // 32 % 4 * 4 + b % 4]
            t = b_scale[j // 128, b // 4, j % 32 // 16, 16 * (j % 16) + j % 128 // 32 * 4 + b % 4]
            acc += (A[m, k] * s) @ (B[n, k] * t)
        C[m, n] = acc
""")
def mx_atoms(A: Any, B: Any, a_scale: Any, b_scale: Any) -> Any:
    blocks = -(-A.shape[1] // 32)
    a = by_blocks(A, from_atoms(a_scale, len(A), blocks))
    return {"C": a @ by_blocks(B, from_atoms(b_scale, len(B), blocks)).T}


ATOMS = SCALED["mx_atoms"].text


@kept(M=140, N=72, K=336, KB=11, L=272, LB=9, H=72)("""
def mx_two_loops(
    A: f8e4m3[M, K], B: f8e4m3[N, K], a_scale: f8e8m0[M, KB], b_scale: f8e8m0[N, KB],
    D: f8e4m3[M, L], E: f8e4m3[N, L], d_scale: f8e8m0[M, LB], e_scale: f8e8m0[N, LB],
    X: bf16[M, H], Y: bf16[N, H], R: bf16[M, N], C: f32[M, N]
):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            b = B[n, k] * b_scale[n, index(k) // 32]
            acc += (A[m, k] * a_scale[m, index(k) // 32]) @ b
        for l in tiles(L):
            e = E[n, l] * e_scale[n, index(l) // 32]
            acc += (D[m, l] * d_scale[m, index(l) // 32]) @ e
        for h in tiles(H):
            acc += X[m, h] @ Y[n, h]
        C[m, n] = acc + cast(R[m, n], f32)
""")
def mx_two_loops(
    A: Any, B: Any, a_scale: Any, b_scale: Any, D: Any, E: Any, d_scale: Any, e_scale: Any,
    X: Any, Y: Any, R: Any,
) -> Any:  # fmt: skip
    first = by_blocks(A, a_scale) @ by_blocks(B, b_scale).T
    return {"C": first + by_blocks(D, d_scale) @ by_blocks(E, e_scale).T + X @ Y.T + R}
