"""Patterns without products, as people write them, beside torch's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.bandwidth_case import Case

TEXT = """
@kernel
def swiglu(X: bf16[M, 2, N], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = silu(cast(X[m, 0, n], f32)) * X[m, 1, n]

@kernel
def swiglu_of_halves(X: bf16[M, W], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = silu(cast(X[m, index(n)], f32)) * X[m, index(n) + N]

@kernel
def dropout(X: bf16[M, N], seed: u32, Y: bf16[M, N]):
    for m, n in tiles(M, N):
        h = (cast(index(m), u32) * 0x9E3779B9 + cast(index(n), u32)) ^ seed
        h = (h ^ (h >> 16)) * 0x7FEB352D
        h = (h ^ (h >> 15)) * 0x846CA68B
        Y[m, n] = where((h ^ (h >> 16)) < 0x40000000, 0.0, X[m, n] * 1.3333334)

@kernel
def rope(X: bf16[S, H, 2, D], C: f32[S, D], Z: f32[S, D], Y: bf16[S, H, 2, D]):
    for h in each(H):
        for s, d in tiles(S, D):
            a, b = X[s, h, 0, d], X[s, h, 1, d]
            Y[s, h, 0, d] = a * C[s, d] - b * Z[s, d]
            Y[s, h, 1, d] = b * C[s, d] + a * Z[s, d]

@kernel
def rope_of_neighbours(X: bf16[S, H, D, 2], C: f32[S, D], Z: f32[S, D], Y: bf16[S, H, D, 2]):
    for h in each(H):
        for s, d in tiles(S, D):
            a, b = X[s, h, d, 0], X[s, h, d, 1]
            Y[s, h, d, 0] = a * C[s, d] - b * Z[s, d]
            Y[s, h, d, 1] = b * C[s, d] + a * Z[s, d]

@kernel
def embedding(T: bf16[V, N], ids: i32[M], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = T[ids[m], n]

@kernel
def scatter_add(D: bf16[M, N], ids: i32[M], G: f32[V, N]):
    for m, n in tiles(M, N):
        G[ids[m], n] += D[m, n]

@kernel
def accumulated(X: bf16[M, N], Y: bf16[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] += X[m, n]

@kernel
def squared(X: f32[N], S: f32[1]):
    for n in tiles(N):
        S[0] += sum(X[n] * X[n], over=n)

@kernel
def columns_added(X: bf16[M, N], S: f32[N]):
    for m, n in tiles(M, N):
        S[n] += sum(cast(X[m, n], f32), over=m)

@kernel
def histogram(X: i32[N], H: i32[B]):
    for n in tiles(N):
        H[X[n]] += 1

@kernel
def cumulative(X: f32[M, N], Y: f32[M, N]):
    for m in tiles(M):
        before = zeros(f32[m])
        for n in tiles(N):
            x = X[m, n]
            Y[m, n] = before + cumsum(x, over=n)
            before += sum(x, over=n)

@kernel
def places(X: bf16[M, N], Y: i32[M]):
    for m in tiles(M):
        best, at = full(f32[m], -inf), zeros(i32[m])
        for n in tiles(N):
            x = cast(X[m, n], f32)
            top = max(x, over=n)
            at = where(~(top <= best) & (best == best), argmax(x, over=n), at)
            best = max(best, top)
        Y[m] = at

@kernel
def largest(X: f32[M, N], I: i32[M, K], V: f32[M, K]):
    for m in tiles(M):
        v, i = full(f32[m, K], -inf), full(i32[m, K], 2147483647)
        for n in tiles(N):
            v, i = topk(X[m, n], K, v, i, over=n)
        V[m, :] = v
        I[m, :] = i

@kernel
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

@kernel
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
"""
FP8 = 448.0
LEAST = 2.0**-100
STEP = 33 / FP8
"""More than between the largest numbers of fp8: what is half-way may go either way in torch."""


def pattern_cases() -> Iterator[Case]:
    import torch

    from wsdsl import kernels, parse

    own = parse(TEXT)
    bf16, f32, f8 = torch.bfloat16, torch.float32, torch.float8_e4m3fn

    def drawn(*shape: int, dtype: Any = bf16) -> Any:
        return torch.randn(*shape, device="cuda", dtype=dtype)

    def rows(x: Any) -> Any:
        most = x.abs().amax(1, True).float().clamp(min=LEAST)
        return (x * (FP8 / most)).to(f8)

    def blocks(x: Any) -> Any:
        y = x.float().unflatten(1, (-1, 32))
        ratio = y.abs().amax(2, True).clamp(min=LEAST) / FP8
        power = ((ratio.view(torch.int32) + 0x7FFFFF) & 0x7F800000).view(f32)
        return (y / power).to(f8).flatten(1)

    for m, n in ((16384, 8192), (65536, 1024), (1024, 65536)):
        yield Case(
            f"quantize_rows {m}x{n}",
            lambda x, y: kernels.quantize(x, out=y),
            lambda m=m, n=n: (drawn(m, n), drawn(m, n).to(f8)),
            lambda x, y: rows(x.float()).float(), lambda x, y: rows(x), 3 * m * n + 4 * m,
            STEP,
        )  # fmt: skip
    m, n = 16384, 8192
    yield Case(
        f"quantize_mxfp8 {m}x{n}",
        lambda x, y: kernels.quantize(x, "mxfp8", out=y),
        lambda m=m, n=n: (drawn(m, n), drawn(m, n).to(f8)),
        lambda x, y: blocks(x).float(), lambda x, y: blocks(x), 3 * m * n + m * n // 32,
        STEP,
    )  # fmt: skip
    yield Case(
        f"quantize_blocks {m}x{n}",
        lambda x, y: kernels.quantize(x, block=128, out=y),
        lambda m=m, n=n: (drawn(m, n), drawn(m, n).to(f8)),
        lambda x, y: rows(x.float().view(-1, 128)).float().view(x.shape),
        lambda x, y: rows(x.view(-1, 128)).view(x.shape), 3 * m * n + m * n // 32,
        STEP,
    )  # fmt: skip
    silu = torch.nn.functional.silu
    yield Case(
        "swiglu 8192x2x8192", own.swiglu, lambda: (drawn(8192, 2, 8192), drawn(8192, 8192)),
        lambda x, y: silu(x[:, 0].float()) * x[:, 1].float(),
        lambda x, y: torch.mul(silu(x[:, 0]), x[:, 1], out=y), 6 << 26,
    )  # fmt: skip
    yield Case(
        "swiglu_of_halves 8192x16384", own.swiglu_of_halves,
        lambda: (drawn(8192, 16384), drawn(8192, 8192)),
        lambda x, y: silu(x[:, :8192].float()) * x[:, 8192:].float(),
        lambda x, y: torch.mul(silu(x[:, :8192]), x[:, 8192:], out=y), 6 << 26,
    )  # fmt: skip
    yield Case(
        "dropout 8192x8192", own.dropout,
        lambda: (drawn(8192, 8192), 7, torch.zeros(8192, 8192, device="cuda", dtype=bf16)),
        lambda x, seed, y: torch.where(y == 0, 0.0, x.float() * 1.3333334),
        lambda x, seed, y: torch.nn.functional.dropout(x, 0.25), 4 << 26,
    )  # fmt: skip

    def turned(a: Any, b: Any, c: Any, s: Any, dim: int) -> Any:
        return torch.stack([a * c - b * s, b * c + a * s], dim)

    yield Case(
        "rope 8192x32x2x64", own.rope,
        lambda: (drawn(8192, 32, 2, 64), *(drawn(8192, 64, dtype=f32) for _ in range(2)),
                 drawn(8192, 32, 2, 64)),
        lambda x, c, s, y: turned(
            x[:, :, 0].float(), x[:, :, 1].float(), c[:, None], s[:, None], 2),
        lambda x, c, s, y: turned(x[:, :, 0], x[:, :, 1], c[:, None], s[:, None], 2).to(bf16),
        8192 * (32 * 128 * 4 + 2 * 64 * 4),
    )  # fmt: skip
    yield Case(
        "rope_of_neighbours 8192x32x64x2", own.rope_of_neighbours,
        lambda: (drawn(8192, 32, 64, 2), *(drawn(8192, 64, dtype=f32) for _ in range(2)),
                 drawn(8192, 32, 64, 2)),
        lambda x, c, s, y: turned(
            x[..., 0].float(), x[..., 1].float(), c[:, None], s[:, None], 3),
        lambda x, c, s, y: turned(x[..., 0], x[..., 1], c[:, None], s[:, None], 3).to(bf16),
        8192 * (32 * 128 * 4 + 2 * 64 * 4),
    )  # fmt: skip

    def chosen(below: int, count: int) -> Any:
        return torch.randint(below, (count,), device="cuda", dtype=torch.int32)

    yield Case(
        "embedding 32768x4096", own.embedding,
        lambda: (drawn(128256, 4096), chosen(128256, 32768), drawn(32768, 4096)),
        lambda t, ids, y: t[ids.long()].float(),
        lambda t, ids, y: torch.index_select(t, 0, ids, out=y), 4 * 32768 * 4096,
    )  # fmt: skip
    yield Case(
        "scatter_add 32768x1024", own.scatter_add,
        lambda: (drawn(32768, 1024), torch.randperm(65536, device="cuda", dtype=torch.int32)[
            :32768], torch.zeros(65536, 1024, device="cuda")),
        lambda d, ids, g: torch.zeros_like(g).index_add_(0, ids.long(), d.float()),
        lambda d, ids, g: g.index_add_(0, ids, d.float()), 10 * 32768 * 1024,
    )  # fmt: skip
    yield Case(
        "accumulated 8192x8192", own.accumulated,
        lambda: (drawn(8192, 8192), torch.zeros(8192, 8192, device="cuda", dtype=bf16)),
        lambda x, y: x.float(), lambda x, y: y.add_(x), 6 << 26,
    )  # fmt: skip
    yield Case(
        f"squared {1 << 26}", own.squared,
        lambda: (drawn(1 << 26, dtype=f32), torch.zeros(1, device="cuda")),
        lambda x, s: (x * x).sum().view(1), lambda x, s: torch.linalg.vecdot(x, x), 4 << 26,
    )  # fmt: skip
    yield Case(
        "columns_added 16384x8192", own.columns_added,
        lambda: (drawn(16384, 8192), torch.zeros(8192, device="cuda")),
        lambda x, s: x.float().sum(0), lambda x, s: s.add_(x.sum(0)), 2 * 16384 * 8192,
    )  # fmt: skip
    for bins in (64, 1024):
        yield Case(
            f"histogram {1 << 24} to {bins}", own.histogram,
            lambda bins=bins: (
                chosen(bins, 1 << 24), torch.zeros(bins, device="cuda", dtype=torch.int32)),
            lambda x, h: torch.bincount(x, minlength=h.numel()).float(),
            lambda x, h: torch.histc(x, h.numel(), 0, h.numel() - 1), 4 << 24,
        )  # fmt: skip
    for m, n in ((16384, 8192), (65536, 1024)):
        yield Case(
            f"cumsum {m}x{n}", own.cumulative,
            lambda m=m, n=n: (drawn(m, n, dtype=f32), drawn(m, n, dtype=f32)),
            lambda x, y: x.cumsum(1), lambda x, y: torch.cumsum(x, 1, out=y), 8 * m * n,
        )  # fmt: skip
        yield Case(
            f"argmax {m}x{n}", own.places,
            lambda m=m, n=n: (drawn(m, n), torch.zeros(m, device="cuda", dtype=torch.int32)),
            lambda x, y: (x == x.amax(1, True)).int().argmax(1).float(),
            lambda x, y: torch.argmax(x, 1), 2 * m * n,
        )  # fmt: skip
    for m, n, k in ((16384, 4096, 8), (65536, 256, 8)):
        yield Case(
            f"topk {m}x{n} of {k}", own.largest,
            lambda m=m, n=n, k=k: (
                drawn(m, n, dtype=f32), torch.zeros(m, k, device="cuda", dtype=torch.int32),
                drawn(m, k, dtype=f32)),
            lambda x, i, v: x.topk(v.shape[1], 1).values,
            lambda x, i, v: torch.topk(x, v.shape[1], 1), 4 * m * n,
        )  # fmt: skip
    groups, channels, pixels = 32, 16, 1024
    yield Case(
        "groupnorm 128x512x32x32", own.groupnorm,
        lambda: (
            drawn(128 * groups, channels * pixels), drawn(groups, channels, dtype=f32),
            drawn(groups, channels, dtype=f32), pixels, drawn(128 * groups, channels * pixels)),
        lambda x, w, b, p, y: torch.nn.functional.group_norm(
            x.float().view(128, -1, p), groups, w.flatten(), b.flatten()).view(x.shape),
        lambda x, w, b, p, y: torch.nn.functional.group_norm(
            x.view(128, -1, p), groups, w.flatten().to(bf16), b.flatten().to(bf16)).view(x.shape),
        4 << 26,
    )  # fmt: skip
    for m, n in ((16384, 4096), (131072, 512)):
        yield Case(
            f"batchnorm {m}x{n}", own.batchnorm,
            lambda m=m, n=n: (drawn(m, n), drawn(m, n)),
            lambda x, y: (x.float() - x.float().mean(0)) * torch.rsqrt(
                x.float().var(0, correction=0) + 1e-5),
            lambda x, y: torch.nn.functional.batch_norm(x, None, None, training=True), 4 * m * n,
        )  # fmt: skip
