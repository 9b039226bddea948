"""Kernels of patterns without products, as people write them, by name: tests have them, too."""

from __future__ import annotations

TEXTS = {
    "swiglu": """
def swiglu(X: bf16[M, 2, N], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = silu(cast(X[m, 0, n], f32)) * X[m, 1, n]
""",
    "swiglu_of_halves": """
def swiglu_of_halves(X: bf16[M, W], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = silu(cast(X[m, index(n)], f32)) * X[m, index(n) + N]
""",
    "dropout": """
def dropout(X: bf16[M, N], seed: u32, Y: bf16[M, N]):
    for m, n in tiles(M, N):
        h = (cast(index(m), u32) * 0x9E3779B9 + cast(index(n), u32)) ^ seed
        h = (h ^ (h >> 16)) * 0x7FEB352D
        h = (h ^ (h >> 15)) * 0x846CA68B
        Y[m, n] = where((h ^ (h >> 16)) < 0x40000000, 0.0, X[m, n] * 1.3333334)
""",
    "rope": """
def rope(X: bf16[S, H, 2, D], C: f32[S, D], Z: f32[S, D], Y: bf16[S, H, 2, D]):
    for h in each(H):
        for s, d in tiles(S, D):
            a, b = X[s, h, 0, d], X[s, h, 1, d]
            Y[s, h, 0, d] = a * C[s, d] - b * Z[s, d]
            Y[s, h, 1, d] = b * C[s, d] + a * Z[s, d]
""",
    "rope_of_neighbours": """
def rope_of_neighbours(X: bf16[S, H, D, 2], C: f32[S, D], Z: f32[S, D], Y: bf16[S, H, D, 2]):
    for h in each(H):
        for s, d in tiles(S, D):
            a, b = X[s, h, d, 0], X[s, h, d, 1]
            Y[s, h, d, 0] = a * C[s, d] - b * Z[s, d]
            Y[s, h, d, 1] = b * C[s, d] + a * Z[s, d]
""",
    "embedding": """
def embedding(T: bf16[V, N], ids: i32[M], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = T[ids[m], n]
""",
    "scatter_add": """
def scatter_add(D: bf16[M, N], ids: i32[M], G: f32[V, N]):
    for m, n in tiles(M, N):
        G[ids[m], n] += D[m, n]
""",
    "accumulated": """
def accumulated(X: bf16[M, N], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] += X[m, n]
""",
    "squared": """
def squared(X: f32[N], S: f32[1]):
    for n in tiles(N):
        S[0] += sum(X[n] * X[n], over=n)
""",
    "columns_added": """
def columns_added(X: bf16[M, N], S: f32[N]):
    for m, n in tiles(M, N):
        S[n] += sum(cast(X[m, n], f32), over=m)
""",
    "histogram": """
def histogram(X: i32[N], H: i32[B]):
    for n in tiles(N):
        H[X[n]] += 1
""",
    "cumulative": """
def cumulative(X: f32[M, N], Y: f32[M, N]):
    for m in tiles(M):
        before = zeros(f32[m])
        for n in tiles(N):
            x = X[m, n]
            Y[m, n] = before + cumsum(x, over=n)
            before += sum(x, over=n)
""",
    "places": """
def places(X: bf16[M, N], Y: i32[M]):
    for m in tiles(M):
        best, at = full(f32[m], -inf), zeros(i32[m])
        for n in tiles(N):
            x = cast(X[m, n], f32)
            top = max(x, over=n)
            at = where(~(top <= best) & (best == best), argmax(x, over=n), at)
            best = max(best, top)
        Y[m] = at
""",
    "largest": """
def largest(X: f32[M, N], I: i32[M, K], V: f32[M, K]):
    for m in tiles(M):
        v, i = full(f32[m, K], -inf), full(i32[m, K], 2147483647)
        for n in tiles(N):
            v, i = topk(X[m, n], K, v, i, over=n)
        V[m, :] = v
        I[m, :] = i
""",
    "groupnorm": """
def groupnorm(X: bf16[R, L], W: f32[G, C], B: f32[G, C], P: i32, Y: bf16[R, L]):
    for r in tiles(R):
        total = zeros(f32[r])
        for l in tiles(L):
            total += sum(cast(X[r, l], f32), over=l)
        mean = total / cast(L, f32)
        squares = zeros(f32[r])
        for l in tiles(L):
            x = X[r, l] - mean
            squares += sum(x * x, over=l)
        scale = rsqrt(squares / cast(L, f32) + 1e-5)
        for l in tiles(L):
            g, c = index(r) % G, index(l) // P
            Y[r, l] = (X[r, l] - mean) * scale * W[g, c] + B[g, c]
""",
    "batchnorm": """
def batchnorm(X: bf16[M, N], Y: bf16[M, N]):
    for n in tiles(N):
        total = zeros(f32[n])
        squares = zeros(f32[n])
        for m in tiles(M):
            x = cast(X[m, n], f32)
            total += sum(x, over=m)
            squares += sum(x * x, over=m)
        mean = total / cast(M, f32)
        scale = rsqrt(squares / cast(M, f32) - mean * mean + 1e-5)
        for m in tiles(M):
            Y[m, n] = (X[m, n] - mean) * scale
""",
}
