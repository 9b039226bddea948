"""Tiles held as vectors: every element is where it belongs, and no other is written."""

from typing import Any

import pytest

from wsdsl import parse

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

TEXT = """
@kernel
def moved(X: {first}[M, N], b: f32[N], s: f32[M], Y: {last}[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = cast(X[m, n], f32) * s[m] + b[n] + cast(index(n) % 3, f32)

@kernel
def line(X: {first}[N], Y: {last}[N]):
    for n in tiles(N):
        Y[n] = cast(X[n], f32) + cast(index(n) % 5, f32)

@kernel
def normalised(X: {first}[M, N], Y: {last}[M, N]):
    for m in tiles(M):
        most = full(f32[m], -inf)
        for n in tiles(N):
            most = max(most, max(cast(X[m, n], f32), over=n))
        for n in tiles(N):
            Y[m, n] = cast(X[m, n], f32) - most
"""
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "i8": torch.int8, "i16": torch.int16}
PAIRS = [("f32", "f32"), ("bf16", "bf16"), ("i8", "bf16"), ("bf16", "f32"), ("i8", "i8")]
PAIRS += [("i16", "i16"), ("f32", "bf16")]
SHAPES = [(1, 16), (70, 48), (129, 1000), (1000, 129), (300, 4093), (513, 2056)]


def small(shape: tuple[int, ...], dtype: str) -> Any:
    return torch.randint(-9, 10, shape, device="cuda").to(TYPES[dtype])


def in_wide_rows(made: Any) -> Any:
    """The same in rows of which each begins at a multiple of 16 bytes, with NaN or 77 behind."""
    wide = torch.full((made.shape[0], -(-made.shape[1] // 16) * 16 + 16), 77, device="cuda")
    wide = wide.to(made.dtype)
    wide[:, : made.shape[1]] = made
    return wide[:, : made.shape[1]]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("first", "last"), PAIRS)
@pytest.mark.parametrize("padded", [False, True])
def test_rows_and_columns(first: str, last: str, shape: tuple[int, int], padded: bool) -> None:
    module = parse(TEXT.format(first=first, last=last))
    x, b = small(shape, first), small(shape[1:], "f32")
    s = small(shape[:1], "f32")
    y = torch.full(shape, 99, device="cuda").to(TYPES[last])
    if padded:
        x, y = in_wide_rows(x), in_wide_rows(y)
    wanted = x.float() * s[:, None] + b + (torch.arange(shape[1], device="cuda") % 3)
    module.moved(x, b, s, y)
    torch.cuda.synchronize()
    assert torch.equal(y, wanted.to(TYPES[last]))
    if padded:
        beyond = torch.as_strided(y, (shape[0] - 1, 16), (y.stride(0), 1), shape[1])
        assert bool((beyond == 77).all())
    module.normalised(x, y)
    torch.cuda.synchronize()
    most = x.float().max(1, keepdim=True).values
    assert torch.equal(y, (x.float() - most).to(TYPES[last]))


@pytest.mark.parametrize("size", [1, 5, 4096, 8191, 8192, 100_003, 1_000_000])
@pytest.mark.parametrize(("first", "last"), PAIRS)
def test_lines(first: str, last: str, size: int) -> None:
    x = small((size,), first)
    whole = torch.full((size + 64,), 77, device="cuda").to(TYPES[last])
    y = whole[:size]
    parse(TEXT.format(first=first, last=last)).line(x, y)
    torch.cuda.synchronize()
    wanted = x.float() + torch.arange(size, device="cuda") % 5
    assert torch.equal(y, wanted.to(TYPES[last])) and bool((whole[size:] == 77).all())
