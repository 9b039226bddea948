"""Kernels with operands that `operand_transform="smem"` makes in SMEM, and such schedules."""

from functools import partial
from typing import Any

import numpy as np

from tests.case_table import Case, case
from tests.kernels import CASES as LOADED
from wsdsl import Schedule

DECODED: dict[str, Case] = {"widened": LOADED["widened"]}
kept = partial(case, DECODED)


@kept(M=72, N=136, K=112)("""
def scaled(X: f16[M, K], W: i8[N, K], s: f16[N], t: f16[K], Y: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += X[m, k] @ (cast(W[n, k], f16) * s[n] + t[k])
        Y[m, n] = acc
""")
def scaled(X: Any, W: Any, s: Any, t: Any) -> Any:
    w = (W.astype(np.float16) * s.astype(np.float16)[:, None]).astype(np.float16)
    return {"Y": X @ (w + t.astype(np.float16)).astype(np.float64).T}


@kept(M=72, N=136, K=112)("""
def both(A: i8[M, K], B: i8[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += cast(A[m, k], bf16) @ cast(B[n, k], bf16)
        C[m, n] = acc
""")
def both(A: Any, B: Any) -> Any:
    return {"C": A @ B.T}


@kept(M=72, N=136, K=112)("""
def of_eights(A: f8e4m3[K, M], B: f8e5m2[N, K], s: f32[M], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += (cast(A[k, m], bf16) * s[m]) @ cast(cast(B[n, k], bf16), f32)
        C[m, n] = acc
""")
def of_eights(A: Any, B: Any, s: Any) -> Any:
    return {"C": (A.T * s[:, None]) @ B.T}


@kept(M=72, N=136, K=104)("""
def across(A: bf16[M, K], B: i8[K, N], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ (cast(B[k, n], bf16) + 1.0)
        C[m, n] = acc
""")
def across(A: Any, B: Any) -> Any:
    return {"C": A @ (B + 1)}


@kept(M=72, N=136, K=112)("""
def eight_bits(A: f8e4m3[M, K], B: u8[N, K], C: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            acc += A[m, k] @ cast(cast(B[n, k] & 7, f32) + 1.0, f8e4m3)
        C[m, n] = acc
""")
def eight_bits(A: Any, B: Any) -> Any:
    return {"C": A @ ((B.astype(int) & 7) + 1.0).T}


@kept(M=72, N=136, K=112)("""
def part(X: bf16[M, K], W: i8[N, K], Y: f32[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(32, 90, of=K):
            acc += X[m, k] @ (cast(W[n, k], bf16) + 1.0)
        Y[m, n] = acc
""")
def part(X: Any, W: Any) -> Any:
    return {"Y": X[:, 32:90] @ (W[:, 32:90] + 1).T}


@kept(M=72, N=136, K=112)("""
def normalised(X: bf16[M, K], W: i8[N, K], Y: f32[M, N]):
    for m in tiles(M):
        for n in tiles(N, by=128):
            acc = zeros(f32[m, n])
            for k in tiles(K):
                acc += X[m, k] @ cast(W[n, k], bf16)
            Y[m, n] = acc / (1.0 + max(abs(acc), over=n))
""")
def normalised(X: Any, W: Any) -> Any:
    acc = X @ W.T
    parts = (acc[:, :128], acc[:, 128:])
    return {"Y": np.hstack([part / (1 + abs(part).max(1, keepdims=True)) for part in parts])}


SCHEDULES = [
    Schedule(operand_transform="smem"),
    Schedule(
        operand_transform="smem",
        tile=dict(m=128, n=128),
        mode="cooperative",
        consumers=2,
        stages=1,
    ),
    Schedule(operand_transform="smem", tile=dict(m=64, n=64), mode="pingpong", consumers=2),
]
FIXED = ("normalised",)
"""Whose text says how wide tiles are."""
BY_TENSOR = {
    "both": [dict(A="shared"), dict(A="registers", B="shared")],
    "eight_bits": [dict(B="shared")],
    "scaled": [dict(W="shared"), dict(s="shared"), dict(W="registers")],
    "normalised": [dict(W="shared")],
}
