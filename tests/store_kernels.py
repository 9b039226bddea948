"""Kernels about what comes after the products: scales, conversions, several outputs, sums in GMEM.
And operands with either of their axes contiguous.
"""

from typing import Any

import numpy as np

from tests.case_table import case


@case(M=136, N=88, K=104)("""
def column_major_b(A: bf16[M, K], B: bf16[K, N], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[k, n]
        C[m, n] = acc
""")
def column_major_b(A: Any, B: Any) -> Any:
    return {"C": A @ B}


@case(M=136, N=88, K=104)("""
def column_major_a(A: f16[K, M], B: f16[N, K], C: f16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[k, m] @ B[n, k]
        C[m, n] = acc
""")
def column_major_a(A: Any, B: Any) -> Any:
    return {"C": A.T @ B.T}


@case(M=136, N=80, K=72)("""
def two_scales(
    A: bf16[M, K], B: bf16[N, K], a_scale: f32[M], b_scale: f32[N], C: bf16[M, N], D: bf16[M, N]
):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        scaled = acc * (a_scale[m] * b_scale[n])
        C[m, n] = scaled
        D[m, n] = relu(scaled)
""")
def two_scales(A: Any, B: Any, a_scale: Any, b_scale: Any) -> Any:
    x = A @ B.T * a_scale[:, None] * b_scale
    return {"C": x, "D": np.maximum(x, 0)}


@case(M=144, N=96, K=72)("""
def bytes_out(A: bf16[M, K], B: bf16[N, K], alpha: f32, C: f8e4m3[M, N], D: f8e5m2[N, M],
              I: i8[M, N], U: u8[N, M]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc * 40.0
        D[n, m] = acc * alpha
        whole = cast(round(acc * 16.0), i32)
        I[m, n] = whole
        U[n, m] = whole
""")
def bytes_out(A: Any, B: Any, alpha: float) -> Any:
    x = A @ B.T
    whole = np.rint(16 * x)
    return {"C": np.clip(40 * x, -448, 448), "D": (x * alpha).T, "I": np.clip(whole, -128, 127),
            "U": np.clip(whole, 0, 255).T}  # fmt: skip


@case(M=72, N=48)("""
def bytes_in(X: f8e4m3[M, N], Y: f8e5m2[N, M], Z: i8[M, N], C: f32[M, N], T: tf32[M, N],
             S: i32[M, N]):
    for m, n in tiles(M, N):
        x = cast(X[m, n], f32) * cast(Y[n, m], f32)
        C[m, n] = x
        T[m, n] = cast(x, tf32)
        S[m, n] = cast(Z[m, n], i32) * 1000
""")
def bytes_in(X: Any, Y: Any, Z: Any) -> Any:
    return {"C": X * Y.T, "T": X * Y.T, "S": 1000 * Z}


@case(E=2, M=80, N=48, K=40)("""
def reduce_narrow(A: bf16[E, M, K], B: bf16[E, N, K], C: bf16[M, N], D: f16[N, M], S: i32[M, N]):
    for e in each(E):
        for m, n in tiles(M, N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[e, m, k] @ B[e, n, k]
            C[m, n] += acc
            D[n, m] += acc
            S[m, n] += cast(acc, i32)
""")
def reduce_narrow(A: Any, B: Any, C: Any, D: Any, S: Any) -> Any:
    x = np.einsum("emk,enk->emn", A, B)
    return {"C": C + x.sum(0), "D": D + x.sum(0).T, "S": S + np.trunc(x).sum(0)}


@case(M=136, N=144, K=72, NB=3)("""
def quantised(A: bf16[M, K], B: bf16[N, K], Q: f8e4m3[M, N], S: f32[M, NB]):
    for m in tiles(M):
        for n in tiles(N, by=64):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[m, k] @ B[n, k]
            s = max(max(abs(acc), over=n), 1e-12) / 448.0
            Q[m, n] = acc / s
            S[m, (end(n) - 1) // 64] = s
""")
def quantised(A: Any, B: Any, S: Any = None) -> Any:
    x = A @ B.T
    first = range(0, x.shape[1], 64)
    s = np.stack([np.maximum(abs(x[:, n : n + 64]).max(1), 1e-12) for n in first], 1) / 448
    return {"Q": x / s.repeat(64, 1)[:, : x.shape[1]], "S": s}


@case(M=80, N=96)("""
def broadcast_bytes(bias: i8[N], rows: f32[M], A: i8[M, N], B: f8e4m3[N, M], C: bool[M, N],
                    D: i32[M, N]):
    for m, n in tiles(M, N):
        A[m, n] = bias[n]
        B[n, m] = rows[m]
        C[m, n] = rows[m] > 0.0
        D[m, n] = 7
""")
def broadcast_bytes(bias: Any, rows: Any) -> Any:
    shape = (rows.size, bias.size)
    return {"A": np.broadcast_to(bias, shape), "B": np.broadcast_to(rows, shape[::-1]),
            "C": np.broadcast_to(rows[:, None] > 0, shape), "D": np.full(shape, 7)}  # fmt: skip
