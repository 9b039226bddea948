"""Kernels that reduce rows and go over them again."""

from typing import Any

import numpy as np

from wsdsl import Kernel, parse
from wsdsl.dispatch.compiled import Compiled

TEXT = """
@kernel
def rmsnorm(X: bf16[M, N], W: bf16[N], Y: bf16[M, N]):
    for m in tiles(M):
        squares = zeros(f32[m])
        for n in tiles(N):
            x = cast(X[m, n], f32)
            squares += sum(x * x, over=n)
        scale = rsqrt(squares / cast(N, f32) + 1e-6)
        for n in tiles(N):
            Y[m, n] = X[m, n] * scale * W[n]

@kernel
def layernorm(X: bf16[M, N], W: bf16[N], B: bf16[N], Y: bf16[M, N]):
    for m in tiles(M):
        total = zeros(f32[m])
        for n in tiles(N):
            total += sum(cast(X[m, n], f32), over=n)
        mean = total / cast(N, f32)
        squares = zeros(f32[m])
        for n in tiles(N):
            d = cast(X[m, n], f32) - mean
            squares += sum(d * d, over=n)
        scale = rsqrt(squares / cast(N, f32) + 1e-6)
        for n in tiles(N):
            Y[m, n] = (X[m, n] - mean) * scale * W[n] + B[n]

@kernel
def softmax(X: f32[M, N], Y: f32[M, N], most: f32[M]):
    for m in tiles(M):
        top, total = full(f32[m], -inf), zeros(f32[m])
        for n in tiles(N):
            new = max(top, max(X[m, n], over=n))
            total = total * exp(top - new) + sum(exp(X[m, n] - new), over=n)
            top = new
        most[m] = top
        for n in tiles(N):
            Y[m, n] = exp(X[m, n] - top) / total

@kernel
def in_one_tile(X: f16[M, N], Y: f16[M, N], S: i32[M]):
    for m, n in tiles(M, N):
        x = cast(X[m, n], f32)
        S[m] = sum(cast(x > 0.5, i32), over=n)
        Y[m, n] = x - min(x, over=n)

@kernel
def whole(X: bf16[M, N], S: f32[M]):
    for m in tiles(M):
        S[m] = max(abs(cast(X[m, :], f32)), over=N)

@kernel
def by_each(X: bf16[B, M, N], Y: f32[B, M, N]):
    for b, m in each(B, M):
        total = 0.0
        for n in tiles(N):
            total += sum(cast(X[b, m, n], f32), over=n)
        for n in tiles(N):
            Y[b, m, n] = cast(X[b, m, n], f32) - total

@kernel
def rescaled(X: f32[M, N]):
    for m, n in tiles(M, N):
        x = X[m, n]
        X[m, n] = x / sum(x, over=n)
"""
KERNELS = parse(TEXT)


def check(
    kernel: Kernel, made: Compiled, given: dict[str, Any], rtol: float = 2e-2, atol: float = 1e-3
) -> None:
    """Compare the simulator with `reference` on `given`, within a tolerance."""
    wanted = kernel.reference(**{name: np.copy(held) for name, held in given.items()})
    found = made.simulate(**given)
    pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
    for got, want in pairs:
        near = np.asarray(got, np.float64), np.asarray(want, np.float64)
        np.testing.assert_allclose(*near, rtol=rtol, atol=atol)
