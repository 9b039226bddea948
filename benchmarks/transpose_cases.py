"""Tensors that are written the other way round, beside torch's copies of views."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.bandwidth_case import Case

TEXT = """
@kernel
def transpose(X: {x}[M, N], Y: {y}[N, M]):
    for m, n in tiles(M, N):
        Y[n, m] = {of}

@kernel
def batched(X: {x}[B, M, N], Y: {y}[B, N, M]):
    for b in each(B):
        for m, n in tiles(M, N):
            Y[b, n, m] = X[b, m, n]

@kernel
def heads(X: {x}[B, S, H, D], Y: {y}[B, H, S, D]):
    for b, h in each(B, H):
        for s, d in tiles(S, D):
            Y[b, h, s, d] = X[b, s, h, d]

@kernel
def keys(X: {x}[B, S, H, D], Y: {y}[B, H, D, S]):
    for b, h in each(B, H):
        for s, d in tiles(S, D):
            Y[b, h, d, s] = X[b, s, h, d]

@kernel
def added(X: {x}[M, N], Z: {y}[N, M], Y: {y}[N, M]):
    for m, n in tiles(M, N):
        Y[n, m] = X[m, n] + Z[n, m]
"""
SHAPES = (
    ("bf16", "bf16", 8192, 8192), ("i8", "i8", 8192, 8192), ("f8e4m3", "f8e4m3", 8192, 8192),
    ("f32", "f32", 8192, 8192), ("f32", "bf16", 8192, 8192), ("bf16", "bf16", 4099, 1001),
    ("bf16", "bf16", 8192, 8200), ("bf16", "bf16", 8191, 8193), ("bf16", "bf16", 65536, 1024),
    ("bf16", "bf16", 1024, 1024),
)  # fmt: skip


def kernels(x: str, y: str) -> Any:
    """Those of these types; results are of the latter."""
    from wsdsl import parse

    if x == y:
        return parse(TEXT.format(x=x, y=y, of="X[m, n]"))
    return parse("@kernel" + TEXT.split("@kernel")[1].format(x=x, y=y, of=f"cast(X[m, n], {y})"))


def transpose_cases() -> Iterator[Case]:
    import torch

    types = dict(bf16=torch.bfloat16, f32=torch.float32, i8=torch.int8, f8e4m3=torch.float8_e4m3fn)

    def drawn(dtype: str, *shape: int) -> Any:
        made = torch.randint(-100, 100, shape, device="cuda").float()
        return made.to(types[dtype])

    def turned(
        name: str, kernel: Any, x: str, y: str, shape: tuple[int, ...], turn: Callable[[Any], Any]
    ) -> Case:
        shown = "x".join(map(str, shape))
        size = types[x].itemsize + types[y].itemsize
        result = tuple(turn(torch.empty(shape, device="meta")).shape)
        return Case(
            f"{name}_{x}{'_' + y if x != y else ''} {shown}",
            kernel,
            lambda: (drawn(x, *shape), torch.empty(result, device="cuda").to(types[y])),
            lambda a, b: turn(a).float(),
            lambda a, b: b.copy_(turn(a)),
            size * torch.Size(shape).numel(),
        )

    for x, y, m, n in SHAPES:
        yield turned("transpose", kernels(x, y).transpose, x, y, (m, n), lambda a: a.t())
    own = kernels("bf16", "bf16")
    both = dict(x="bf16", y="bf16")
    shape = (4, 4096, 32, 128)
    yield turned("batched", own.batched, **both, shape=(16, 2048, 2048), turn=lambda a: a.mT)
    yield turned("heads", own.heads, **both, shape=shape, turn=lambda a: a.transpose(1, 2))
    yield turned("keys", own.keys, **both, shape=shape, turn=lambda a: a.permute(0, 2, 3, 1))
    yield Case(
        "added_bf16 8192x8192", own.added,
        lambda: tuple(drawn("bf16", 8192, 8192) for _ in range(3)),
        lambda x, z, y: x.float().t() + z.float(),
        lambda x, z, y: torch.add(x.t(), z, out=y), 6 << 26,
    )  # fmt: skip
