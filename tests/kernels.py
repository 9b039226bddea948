"""Kernels of the shape that is lowered, with what they mean in plain NumPy (float64)."""

from typing import Any

import numpy as np

from tests import store_kernels
from tests.case_data import DTYPES, TENSOR_CORES, TOLERANCE, check, expected, inputs, simulated
from tests.case_table import CASES, Case, case, gelu, silu

__all__ = [
    "CASES", "DTYPES", "TENSOR_CORES", "TOLERANCE", "Case", "chained_kernels", "check", "expected",
    "inputs", "range_kernels", "simulated", "store_kernels", "type_kernels",
]  # fmt: skip


@case(M=150, N=264, K=136)("""
def gemm(A: bf16[M, K], B: bf16[N, K], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc
""")
def gemm(A: Any, B: Any) -> Any:
    return {"C": A @ B.T}


@case(M=136, N=72, K=100)("""
def mn_major(A: f16[K, M], B: f16[K, N], C: f16[N, M]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[k, m] @ B[k, n]
        C[n, m] = acc
""")
def mn_major(A: Any, B: Any) -> Any:
    return {"C": (A.T @ B).T}


@case(M=70, N=40)("""
def scale(A: bf16[M, N], C: f32[M, N], alpha: f32):
    for m, n in tiles(M, N):
        C[m, n] = cast(A[m, n], f32) * alpha
""")
def scale(A: Any, alpha: float) -> Any:
    return {"C": A * alpha}


@case(M=130, N=80, K=72)("""
def epilogue(
    A: bf16[M, K], B: bf16[N, K], bias: f32[N], rows: f32[M], R: bf16[M, N], C: bf16[M, N]
):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = gelu(acc * rows[m] + bias[n]) + cast(R[m, n], f32)
""")
def epilogue(A: Any, B: Any, bias: Any, rows: Any, R: Any) -> Any:
    return {"C": gelu(A @ B.T * rows[:, None] + bias) + R}


@case(M=100, N=136, K=80)("""
def two_products(X: bf16[M, K], G: bf16[N, K], U: bf16[N, K], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        g, u = zeros(f32[m, n]), zeros(f32[m, n])
        for k in tiles(K):
            x = X[m, k]
            g += x @ G[n, k]
            u += x @ U[n, k]
        Y[m, n] = silu(g) * u
""")
def two_products(X: Any, G: Any, U: Any) -> Any:
    return {"Y": silu(X @ G.T) * (X @ U.T)}


@case(M=72, N=72, K=200, L=88)("""
def two_loops(A: bf16[M, K], B: bf16[N, K], D: f16[L, M], E: f16[N, L], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        for l in tiles(L):
            acc += D[l, m] @ E[n, l]
        C[m, n] = acc
""")
def two_loops(A: Any, B: Any, D: Any, E: Any) -> Any:
    return {"C": A @ B.T + D.T @ E.T}


@case(M=150, N=520, K=72)("""
def nested(A: bf16[M, K], B: bf16[N, K], C: bf16[M, N], total: f32[M], top: f32[M]):
    for m in tiles(M):
        s, t = zeros(f32[m]), full(f32[m], -inf)
        for n in tiles(N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[m, k] @ B[n, k]
            C[m, n] = acc
            s += sum(acc * acc, over=n)
            t = max(t, max(acc, over=n))
        total[m] = s
        top[m] = t
""")
def nested(A: Any, B: Any) -> Any:
    x = A @ B.T
    return {"C": x, "total": (x * x).sum(1), "top": x.max(1)}


@case(G=3, M=130, N=24, K=40)("""
def batched(A: bf16[G, M, K], B: bf16[G, N, K], C: bf16[G, M, N]):
    for g in each(G):
        for m, n in tiles(M, N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[g, m, k] @ B[g, n, k]
            C[g, m, n] = acc
""")
def batched(A: Any, B: Any) -> Any:
    return {"C": A @ B.transpose(0, 2, 1)}


@case(M=130, N=300, D=80)("""
def whole(A: bf16[M, D], B: bf16[N, D], R: f32[M]):
    for m in tiles(M):
        s = zeros(f32[m])
        for n in tiles(N):
            s += sum(A[m, :] @ B[n, :], over=n)
        R[m] = s
""")
def whole(A: Any, B: Any) -> Any:
    return {"R": (A @ B.T).sum(1)}


@case(M=130, N=300, D=64)("""
def held_operand(A: bf16[M, D], B: bf16[N, D], R: f32[M]):
    for m in tiles(M):
        a = A[m, :]
        s = zeros(f32[m])
        for n in tiles(N):
            s += sum(relu(a @ B[n, :]), over=n)
        R[m] = s
""")
def held_operand(A: Any, B: Any) -> Any:
    return {"R": np.maximum(A @ B.T, 0).sum(1)}


@case(M=64, N=48, K=24)("""
def bias_first(A: bf16[M, K], B: bf16[N, K], bias: f32[N], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n]) + bias[n]
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        C[m, n] = acc
""")
def bias_first(A: Any, B: Any, bias: Any) -> Any:
    return {"C": A @ B.T + bias}


@case(E=3, M=80, N=40, K=72)("""
def each_inside(A: bf16[E, M, K], B: bf16[E, N, K], w: f32[E], C: f32[M, N]):
    for m, n in tiles(M, N):
        out = zeros(f32[m, n])
        for e in each(E):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[e, m, k] @ B[e, n, k]
            out += acc * w[e]
        C[m, n] = out
""")
def each_inside(A: Any, B: Any, w: Any) -> Any:
    return {"C": np.einsum("emk,enk,e->mn", A, B, w)}


@case(E=3, M=80, N=40, K=72)("""
def accumulated_in_nest(A: bf16[E, M, K], B: bf16[E, N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for e in each(E):
            for k in tiles(K):
                acc += A[e, m, k] @ B[e, n, k]
        C[m, n] = acc
""")
def accumulated_in_nest(A: Any, B: Any) -> Any:
    return {"C": np.einsum("emk,enk->mn", A, B)}


@case(M=100, N=200)("""
def row_softmax(X: f32[M, N], top: f32[M], Y: f32[M, N]):
    for m in tiles(M):
        s = zeros(f32[m])
        for n in tiles(N):
            s += sum(exp(X[m, n] - top[m]), over=n)
        for n in tiles(N):
            Y[m, n] = exp(X[m, n] - top[m]) / s
""")
def row_softmax(X: Any, top: Any) -> Any:
    e = np.exp(X - top[:, None])
    return {"Y": e / e.sum(1, keepdims=True)}


@case(E=3, M=80, N=40, K=72)("""
def reduce_into(A: bf16[E, M, K], B: bf16[E, N, K], C: f32[M, N]):
    for e in each(E):
        for m, n in tiles(M, N):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += A[e, m, k] @ B[e, n, k]
            C[m, n] += acc
""")
def reduce_into(A: Any, B: Any, C: Any) -> Any:
    return {"C": C + np.einsum("emk,enk->mn", A, B)}


@case(M=72, N=88)("""
def broadcast(bias: f32[N], rows: f32[M], C: bf16[M, N], D: bf16[N, M]):
    for m, n in tiles(M, N):
        C[m, n] = bias[n]
        D[n, m] = rows[m]
""")
def broadcast(bias: Any, rows: Any) -> Any:
    shape = (rows.size, bias.size)
    return {"C": np.broadcast_to(bias, shape), "D": np.broadcast_to(rows, shape[::-1])}


@case(M=100, N=40, D=48, K=72)("""
def around_a_loop(A: bf16[M, D], B: bf16[N, D], X: bf16[M, K], W: bf16[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = A[m, :] @ B[n, :]
        for k in tiles(K):
            acc += X[m, k] @ W[n, k]
        acc += A[m, :] @ B[n, :]
        C[m, n] = acc
""")
def around_a_loop(A: Any, B: Any, X: Any, W: Any) -> Any:
    return {"C": 2 * (A @ B.T) + X @ W.T}


@case(M=72, N=88, K=24, T=5)("""
def gathered_bias(A: bf16[M, K], B: bf16[N, K], which: i32[M], table: f32[T, N], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
        keep = where(index(n) < index(m), acc, 0.0)
        C[m, n] = keep + table[which[m], n]
""")
def gathered_bias(A: Any, B: Any, which: Any, table: Any) -> Any:
    x = A @ B.T
    m, n = np.indices(x.shape)
    return {"C": np.where(n < m, x, 0) + table[which.astype(int)]}


# Behind the others: tests that draw schedules at random go through the table in order.
from tests import chained_kernels, range_kernels, type_kernels  # noqa: E402
