"""Sample kernels on the GPU: right, all written, again and again."""

from functools import cache
from typing import Any

import pytest

import wsdsl
from tests.simulator.kernels import sample_text
from tests.simulator.test_samples import NAMES

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu
GUARD = 8


@cache
def sample(name: str) -> wsdsl.Compiled:
    return wsdsl.compile_ir(sample_text(name), name)


def in_guards(rows: int, columns: int, dtype: Any) -> tuple[Any, Any]:
    """NaNs amid more NaNs, rows at multiples of 16 bytes as TMA needs; and the whole buffer."""
    wide = -(-columns // GUARD) * GUARD
    whole = torch.full((rows + 2, wide + 2 * GUARD), float("nan"), device="cuda", dtype=dtype)
    return whole[1:-1, GUARD : GUARD + columns], whole


def run(name: str, m: int, n: int, k: int, times: int = 1) -> None:
    torch.manual_seed(m + n + k)
    a, _ = in_guards(m, k, torch.bfloat16)
    b, _ = in_guards(n, k, torch.bfloat16)
    a.copy_(torch.randn(m, k, device="cuda"))
    b.copy_(torch.randn(n, k, device="cuda"))
    want = a.double() @ b.double().t()
    given: dict[str, Any] = {"A": a, "B": b}
    first: Any = None
    for _ in range(times):
        given["C"], whole = in_guards(m, n, torch.bfloat16)
        kernel = sample(name)
        kernel(*(given[p.name] for p in kernel.scheduled.params))
        torch.cuda.synchronize()
        got = given["C"].double()
        assert bool(got.isfinite().all()), "not all is written"
        # The product in f32, rounded to bf16.
        error, large = (got - want).abs().max().item(), want.abs().max().item()
        assert error <= 2.0**-8 * max(large, 1.0)
        given["C"].fill_(float("nan"))
        assert bool(whole.isnan().all()), "written outside"
        assert first is None or torch.equal(got, first), "not the same each time"
        first = got


STORED_BY_TMA = ("gemm", "gemm_cluster", "stream_k")


@pytest.mark.parametrize(
    "size",
    [
        (256, 256, 320),
        (383, 129, 200),
        (130, 300, 64),
        (64, 1, 577),
        (1, 1, 1),
        (70, 130, 0),
        (129, 4000, 72),
        (2049, 3001, 1031),
    ],
    ids=repr,
)
@pytest.mark.parametrize("name", NAMES)
def test_sizes(name: str, size: tuple[int, int, int]) -> None:
    m, n, k = size
    if name in STORED_BY_TMA:
        n = -(-n // 8) * 8  # a TMA store writes whole 16 bytes; other rows are refused
    run(name, m, n, k)


@pytest.mark.parametrize("name", NAMES)
def test_again_and_again(name: str) -> None:
    """Many tiles a CTA: rings, turns and flags come round often."""
    run(name, 4096, 3968, 512, times=20)
