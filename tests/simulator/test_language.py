"""The kernels of language.md, read by the frontend and evaluated by the reference."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from wsdsl.frontend import from_text
from wsdsl.simulator.arrays import pack_nibbles
from wsdsl.simulator.reference import evaluate

BF16, FP8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
TILES = [None, {"m": 7, "n": 5, "k": 6, "q": 4, "t": 3}]

ATTENTION = """
@kernel
def attention(Q: bf16[B, H, S, D], K: bf16[B, H, T, D], V: bf16[B, H, T, D],
              O: bf16[B, H, S, D], scale: f32):
    for b, h in each(B, H):
        for q in tiles(S):
            top, total, acc = full(f32[q], -inf), zeros(f32[q]), zeros(f32[q, D])
            for t in tiles(T):
                s = (Q[b, h, q, :] @ K[b, h, t, :]) * scale
                new_top = max(top, max(s, over=t))
                p, shrink = exp2(s - new_top), exp2(top - new_top)
                total = total * shrink + sum(p, over=t)
                acc = acc * shrink + cast(p, bf16) @ V[b, h, t, :]
                top = new_top
            O[b, h, q, :] = acc / total
"""

UNWEIGHT = """
@kernel
def unweight_gemm(X: bf16[M, K], low: u8[N, K], exponent: u4[N, K], palette: u8[16], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            sm = cast(low[n, k], u16)
            e = cast(lookup(palette, exponent[n, k]), u16)
            w = bitcast((sm & 0x80) << 8 | e << 7 | sm & 0x7F, bf16)
            acc += X[m, k] @ w
        Y[m, n] = acc
"""

BLOCK_SCALED = """
@kernel
def fp8(A: f8e4m3[M, K], B: f8e4m3[N, K], a_scale: f32[M, KB], b_scale: f32[NB, KB], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        for k in tiles(K):
            scaled = B[n, k] * b_scale[index(n) // 8, index(k) // 8]
            acc += (A[m, k] * a_scale[m, index(k) // 8]) @ scaled
        C[m, n] = acc
"""


def run(text: str, tile: Any, **arrays: Any) -> None:
    (kernel,) = from_text(text).values()
    evaluate(kernel, arrays, tile)


def near(got: Any, wanted: Any) -> None:
    error = np.abs(got.astype(np.float64) - wanted)
    assert np.all(error <= 2.0**-7 * np.abs(wanted).max())


@pytest.mark.parametrize("tile", TILES)
def test_attention(tile: Any) -> None:
    rng = np.random.default_rng(0)
    q = rng.standard_normal((2, 2, 9, 8)).astype(BF16)
    k, v = (rng.standard_normal((2, 2, 13, 8)).astype(BF16) for _ in range(2))
    o = np.full_like(q, np.nan)
    run(ATTENTION, tile, Q=q, K=k, V=v, O=o, scale=0.3)
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    p = np.exp2(np.einsum("bhsd,bhtd->bhst", q, k) * 0.3)
    near(o, np.einsum("bhst,bhtd->bhsd", p / p.sum(-1, keepdims=True), v))


@pytest.mark.parametrize("tile", TILES)
def test_unweight(tile: Any) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((10, 16)).astype(BF16)
    w = rng.standard_normal((12, 16)).astype(BF16)
    bits = w.view(np.uint16)
    w = np.where((bits >> 7 & 255) > 120, w, BF16(1))
    bits = w.view(np.uint16)
    palette, codes = np.unique(bits >> 7 & 255, return_inverse=True)
    whole = np.zeros(16, np.uint8)
    whole[: len(palette)] = palette
    packed = np.zeros((12, 8), np.uint8)
    pack_nibbles(codes.reshape(w.shape).astype(np.uint8), packed)
    low = (bits >> 8 & 128 | bits & 127).astype(np.uint8)
    y = np.full((10, 12), np.nan, BF16)
    run(UNWEIGHT, tile, X=x, low=low, exponent=packed, palette=whole, Y=y)
    near(y, x.astype(np.float64) @ w.astype(np.float64).T)


@pytest.mark.parametrize("tile", TILES)
def test_block_scales(tile: Any) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((11, 20)).astype(FP8), rng.standard_normal((18, 20)).astype(FP8)
    a_scale = rng.random((11, 3)).astype(np.float32)
    b_scale = rng.random((3, 3)).astype(np.float32)
    c = np.full((11, 18), np.nan, BF16)
    run(BLOCK_SCALED, tile, A=a, B=b, a_scale=a_scale, b_scale=b_scale, C=c)
    whole_a = a.astype(np.float64) * a_scale.repeat(8, 1)[:, :20]
    whole_b = b.astype(np.float64) * b_scale.repeat(8, 0)[:18].repeat(8, 1)[:, :20]
    near(c, whole_a @ whole_b.T)
