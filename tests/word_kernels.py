"""Kernels of the words for kernels without products: text, sizes, and inputs where random ones of a
type would not do.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class WordKernel:
    """`inputs` by name; every other tensor is written. The reference says what comes out."""

    body: str
    sizes: Mapping[str, int]
    inputs: Callable[[Mapping[str, int]], dict[str, Any]]
    tiles: tuple[Mapping[str, int] | None, ...] = field(default=(None,))
    """Schedules' tiles to try."""

    @property
    def text(self) -> str:
        return f"\n@kernel{self.body}"


def _floats(sizes: Mapping[str, int]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((sizes["M"], sizes["N"])).astype(np.float32)
    return {"X": x.astype(ml_dtypes.bfloat16)}


def _few_values(sizes: Mapping[str, int]) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    x = rng.integers(-4, 5, (sizes["M"], sizes["N"])).astype(np.float32)
    x[0], x[1, :-1] = -np.inf, np.inf
    x[rng.random(x.shape) < 1 / sizes["N"]] = np.nan
    return {"X": x}


def _whole_numbers(sizes: Mapping[str, int]) -> dict[str, Any]:
    """Whose sums are exact in any order."""
    rng = np.random.default_rng(3)
    return {"X": rng.integers(-999, 999, (sizes["M"], sizes["N"])).astype(np.float32)}


def _bounded(sizes: Mapping[str, int]) -> dict[str, Any]:
    """Without NaN; the largest of a row is there twice, so that shares are exact."""
    rng = np.random.default_rng(4)
    x = rng.integers(-9, 9, (sizes["M"], sizes["N"])).astype(np.float32)
    x[:, [5, 77]] = 9
    return {"X": x}


def _bits(sizes: Mapping[str, int]) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    return {"X": rng.integers(0, 2**32, (sizes["M"], sizes["N"])).astype(np.uint32)}


HASH = """
def hash(X: u32[M, N], Y: u32[M, N], Z: i32[M, N]):
    for m, n in tiles(M, N):
        h = X[m, n] * 0x9E3779B9 + cast(index(m) * 7919 + index(n), u32)
        h = (h ^ (h >> 16)) * 0x7FEB352D
        Y[m, n] = mulhi(h, X[m, n]) + (h << 5)
        Z[m, n] = popcount(h) + mulhi(bitcast(h, i32), -7) % 10 + (index(n) * 50000003) % 10
"""
PLACES = """
def places(X: f32[M, N], Y: i32[M], Z: i32[M]):
    for m in tiles(M):
        best, at = full(f32[m], -inf), zeros(i32[m])
        least, where_least = full(f32[m], inf), zeros(i32[m])
        for n in tiles(N):
            x = X[m, n]
            top, low = max(x, over=n), min(x, over=n)
            at = where(~(top <= best) & (best == best), argmax(x, over=n), at)
            later = ~(low >= least) & (least == least)
            where_least = where(later, argmin(x, over=n), where_least)
            best, least = max(best, top), min(least, low)
        Y[m] = at
        Z[m] = where_least
"""
WHOLE_ROWS = """
def whole_rows(X: f32[M, N], Y: i32[M]):
    for m in tiles(M):
        Y[m] = argmax(X[m, :], over=N)
"""
FP8 = """
def fp8(X: bf16[M, N], Y: f8e4m3[M, N], S: f32[M, NB]):
    for m, n in tiles(M, N):
        x = cast(X[m, n], f32)
        s = max(max(abs(x), over=n, per=128) / 448.0, 1e-12)
        Y[m, n] = x / s
        S[m, index(n) // 128] = s
"""
MXFP8 = """
def mxfp8(X: bf16[M, N], Y: f8e4m3[M, N], S: f8e8m0[M, NB]):
    for m, n in tiles(M, N):
        x = cast(X[m, n], f32)
        s = cast(exp2(floor(log2(max(abs(x), over=n, per=32))) - 8.0), f8e8m0)
        Y[m, n] = x / cast(s, f32)
        S[m, index(n) // 32] = s
"""
CUMSUM = """
def cumulative(X: f32[M, N], Y: f32[M, N], Z: u32[M, N]):
    for m in tiles(M):
        before, bits = zeros(f32[m]), zeros(u32[m])
        for n in tiles(N):
            x = X[m, n]
            whole = cast(x * 1000003.0, i32)
            Y[m, n] = before + cumsum(x, over=n)
            Z[m, n] = bits + cumsum(bitcast(whole, u32), over=n)
            before += sum(x, over=n)
            bits += sum(bitcast(whole, u32), over=n)
"""
TOPK = """
def largest(X: f32[M, N], V: f32[M, K], I: i32[M, K]):
    for m in tiles(M):
        v, i = full(f32[m, K], -inf), full(i32[m, K], 2147483647)
        for n in tiles(N):
            v, i = topk(X[m, n], K, v, i, over=n)
        V[m, :] = v
        I[m, :] = i
"""
ROUTER = """
def router(X: f32[M, N], V: f32[M, K], I: i32[M, K]):
    for m in tiles(M):
        v, i = topk(X[m, :], K, over=N)
        top = exp(v - max(v, over=K))
        V[m, :] = top / sum(top, over=K)
        I[m, :] = i
"""
WORD_KERNELS = {
    "hash": WordKernel(HASH, dict(M=70, N=300), _bits),
    "places": WordKernel(PLACES, dict(M=70, N=300), _few_values, (None, dict(m=64, n=16))),
    "whole_rows": WordKernel(WHOLE_ROWS, dict(M=70, N=200), _few_values),
    "cumulative": WordKernel(CUMSUM, dict(M=70, N=300), _whole_numbers, (None, dict(m=64, n=16))),
    "largest": WordKernel(TOPK, dict(M=70, N=300, K=4), _few_values, (None, dict(m=64, n=16))),
    "router": WordKernel(ROUTER, dict(M=70, N=128, K=2), _bounded),
    "fp8": WordKernel(FP8, dict(M=70, N=456, NB=4), _floats, (None, dict(m=64, n=256))),
    "mxfp8": WordKernel(MXFP8, dict(M=70, N=296, NB=10), _floats, (None, dict(m=64, n=32))),
}
