"""Kernels without products whose tensors have neighbours along different axes."""

from typing import Any

from wsdsl import parse

TEXT = """
@kernel
def transpose(X: {x}[M, N], Y: {y}[N, M]):
    for m, n in tiles(M, N):
        Y[n, m] = {of}

@kernel
def scaled(X: {x}[M, N], a: f32[N], b: f32[M], c: f32, Y: {y}[N, M]):
    for m, n in tiles(M, N):
        Y[n, m] = cast(X[m, n], f32) * a[n] + b[m] * c

@kernel
def added(X: {x}[M, N], Z: {y}[N, M], Y: {y}[N, M]):
    for m, n in tiles(M, N):
        Y[n, m] = cast(X[m, n], f32) + cast(Z[n, m], f32)

@kernel
def both(X: {x}[M, N], Z: {x}[N, M], Y: {y}[N, M], W: {y}[M, N]):
    for m, n in tiles(M, N):
        w = cast(X[m, n], f32) + cast(Z[n, m], f32)
        Y[n, m] = w
        W[m, n] = w * 2.0

@kernel
def batched(X: {x}[B, M, N], Y: {y}[B, N, M]):
    for b in each(B):
        for m, n in tiles(M, N):
            Y[b, n, m] = cast(X[b, m, n], f32)

@kernel
def inner(X: {x}[M, B, N], Y: {y}[B, N, M]):
    for m, n in tiles(M, N):
        for b in each(B):
            Y[b, n, m] = cast(X[m, b, n], f32)

@kernel
def heads(X: {x}[B, S, H, D], Y: {y}[B, H, S, D]):
    for b, h in each(B, H):
        for s, d in tiles(S, D):
            Y[b, h, s, d] = cast(X[b, s, h, d], f32)

@kernel
def keys(X: {x}[B, S, H, D], Y: {y}[B, H, D, S]):
    for b, h in each(B, H):
        for s, d in tiles(S, D):
            Y[b, h, d, s] = cast(X[b, s, h, d], f32)

@kernel
def quantised(X: {x}[M, N], Q: {y}[M, N], T: {y}[N, M], S: f32[M, K]):
    for m, n in tiles(M, N):
        x = cast(X[m, n], f32)
        s = max(max(abs(x), over=n, per=32), 1.0)
        Q[m, n] = x / s
        T[n, m] = x / s
        S[m, index(n) // 32] = s

@kernel
def in_place(X: {x}[M, N], Y: {y}[N, M], Z: {x}[M, N]):
    for m, n in tiles(M, N):
        Z[m, n] = X[m, n]
        Y[n, m] = cast(Y[n, m], f32) + cast(X[m, n], f32)
"""


def turned_kernel(name: str, x: str, y: str) -> Any:
    of = "X[m, n]" if x == y else f"cast(X[m, n], {y})"
    text = next(text for text in TEXT.split("@kernel") if f" {name}(" in text)
    return vars(parse("@kernel" + text.format(x=x, y=y, of=of)))[name]
