"""Kernels whose operands are of other types than bf16, and ones that are scaled."""

from typing import Any

import numpy as np

from tests.case_table import CASES, Case, case

PRODUCT = """
@kernel
def product(A: {a}[M, K], B: {b}[N, K], C: {c}[M, N]):
    for m, n in tiles(M, N):
        acc = zeros({acc}[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc
"""


def _product(A: Any, B: Any) -> Any:
    return {"C": A @ B.T}


for _a, _b, _c in (
    ("tf32", "tf32", "f32"),
    ("f8e4m3", "f8e4m3", "bf16"),
    ("f8e5m2", "f8e4m3", "f32"),
    ("i8", "i8", "i32"),
    ("u8", "i8", "i32"),
):
    _acc = "i32" if _c == "i32" else "f32"
    _name = f"product_{_a}" if _a == _b else f"product_{_a}_{_b}"
    _text = PRODUCT.format(a=_a, b=_b, c=_c, acc=_acc)
    CASES[_name] = Case(_text, _product, dict(M=72, N=88, K=272))


@case(M=72, N=88, K=72)("""
def second_operand_first(A: u8[M, K], B: i8[N, K], R: i32[M]):
    for m in tiles(M):
        s = zeros(i32[m])
        for n in tiles(N):
            s += sum(B[n, :] @ A[m, :], over=n)
        R[m] = s
""")
def second_operand_first(A: Any, B: Any) -> Any:
    return {"R": (A @ B.T).sum(1)}


@case(M=72, N=88, K=200)("""
def two_types(A: i8[M, K], B: u8[N, K], X: bf16[M, K], Y: bf16[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        i, x = zeros(i32[m, n]), zeros(f32[m, n])
        for k in tiles(K):
            i += A[m, k] @ B[n, k]
            x += X[m, k] @ Y[n, k]
        C[m, n] = cast(i, f32) / 1000.0 + x
""")
def two_types(A: Any, B: Any, X: Any, Y: Any) -> Any:
    return {"C": A @ B.T / 1000 + X @ Y.T}


@case(M=72, N=200, K=272, NB=2, KB=3)("""
def block_scaled(
    A: f8e4m3[M, K], B: f8e4m3[N, K], a_scale: f32[M, KB], b_scale: f32[NB, KB], C: bf16[M, N]
):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            a = A[m, k] * a_scale[m, index(k) // 128]
            acc += a @ (B[n, k] * b_scale[index(n) // 128, index(k) // 128])
        C[m, n] = acc
""")
def block_scaled(A: Any, B: Any, a_scale: Any, b_scale: Any) -> Any:
    m, n, k = (np.arange(size) for size in (A.shape[0], *B.shape))
    a = A * a_scale[m[:, None], k // 128]
    return {"C": a @ (B * b_scale[n[:, None] // 128, k // 128]).T}


@case(M=72, N=88, K=144, KB=3)("""
def two_scaled(A: f8e4m3[M, K], B: f8e4m3[N, K], D: f8e4m3[N, K], s: f32[M, KB], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            a = A[m, k] * s[m, index(k) // 64]
            acc += a @ cast(B[n, k], f32) + a @ cast(D[n, k], f32)
        C[m, n] = acc
""")
def two_scaled(A: Any, B: Any, D: Any, s: Any) -> Any:
    return {"C": A * s[:, np.arange(A.shape[1]) // 64] @ (B + D).T}


@case(M=72, N=88, K=144)("""
def scaled(A: f8e4m3[M, K], B: f8e5m2[N, K], sa: f32[M], sb: f32[N], C: bf16[M, N], alpha: f32):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc * sa[m] * sb[n] * alpha
""")
def scaled(A: Any, B: Any, sa: Any, sb: Any, alpha: float) -> Any:
    return {"C": A @ B.T * sa[:, None] * sb * alpha}


@case(M=200, N=72, K=136, KG=3, MG=4)("""
def scaled_rows(A: bf16[M, K], B: bf16[N, K], s: f32[M], G: f32[KG, MG], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            a = cast(A[m, k], f32) * s[m] * G[index(k) // 64, index(m) // 64]
            acc += a @ (0.5 * cast(B[n, k], f32))
        C[m, n] = acc
""")
def scaled_rows(A: Any, B: Any, s: Any, G: Any) -> Any:
    m, k = (np.arange(size) for size in A.shape)
    return {"C": 0.5 * (A * s[:, None] * G[k // 64, m[:, None] // 64]) @ B.T}
