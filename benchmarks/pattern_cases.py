"""Patterns without products, as people write them, beside torch's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.bandwidth_case import Case
from benchmarks.pattern_texts import TEXTS

FP8 = 448.0
LEAST = 2.0**-100
STEP = 33 / FP8
"""More than between the largest numbers of fp8: what is half-way may go either way in torch."""


def pattern_cases() -> Iterator[Case]:
    import torch

    from wsdsl import kernels, parse

    own = parse("".join(f"\n@kernel{text}" for text in TEXTS.values()))
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
