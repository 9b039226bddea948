"""Reductions of rows, to a value for each column, beside torch's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.bandwidth_case import Case

TEXT = """
@kernel
def bias(X: bf16[M, N], S: f32[N]):
    for n in tiles(N):
        total = zeros(f32[n])
        for m in tiles(M):
            total += sum(cast(X[m, n], f32), over=m)
        S[n] = total

@kernel
def bias_of_floats(X: f32[M, N], S: f32[N]):
    for n in tiles(N):
        total = zeros(f32[n])
        for m in tiles(M):
            total += sum(X[m, n], over=m)
        S[n] = total

@kernel
def greatest(X: bf16[M, N], S: f32[N]):
    for n in tiles(N):
        most = full(f32[n], -inf)
        for m in tiles(M):
            most = max(most, max(cast(X[m, n], f32), over=m))
        S[n] = most

@kernel
def deviation(X: bf16[M, N], S: f32[N]):
    for n in tiles(N):
        total = zeros(f32[n])
        squares = zeros(f32[n])
        for m in tiles(M):
            x = cast(X[m, n], f32)
            total += sum(x, over=m)
            squares += sum(x * x, over=m)
        mean = total / cast(M, f32)
        S[n] = sqrt(squares / cast(M, f32) - mean * mean)
"""
SIZES = ((16384, 8192), (131072, 1024), (1 << 21, 64), (16384, 4099), (1000, 131072))


def column_cases() -> Iterator[Case]:
    import torch

    from wsdsl import parse

    kernels = parse(TEXT)

    def drawn(m: int, n: int, dtype: Any = torch.bfloat16) -> tuple[Any, Any]:
        return torch.randn(m, n, device="cuda", dtype=dtype), torch.zeros(n, device="cuda")

    for m, n in SIZES:
        yield Case(
            f"column_sums {m}x{n}", kernels.bias, lambda m=m, n=n: drawn(m, n),
            lambda x, s: x.float().sum(0), lambda x, s: x.sum(0, dtype=torch.float32), 2 * m * n,
        )  # fmt: skip
    m, n = SIZES[0]
    yield Case(
        f"column_sums_f32 {m}x{n}", kernels.bias_of_floats,
        lambda: drawn(m, n, torch.float32),
        lambda x, s: x.sum(0), lambda x, s: x.sum(0), 4 * m * n,
    )  # fmt: skip
    yield Case(
        f"column_max {m}x{n}", kernels.greatest, lambda: drawn(m, n),
        lambda x, s: x.float().amax(0), lambda x, s: x.amax(0), 2 * m * n,
    )  # fmt: skip
    yield Case(
        f"column_deviation {m}x{n}", kernels.deviation, lambda: drawn(m, n),
        lambda x, s: x.float().std(0, correction=0), lambda x, s: x.std(0, correction=0), 2 * m * n,
    )  # fmt: skip
