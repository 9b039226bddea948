"""Operands that threads read in their slots: rows normalised beside the product, on the card."""

from typing import Any

import pytest

import wsdsl
from wsdsl import Schedule

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

KERNEL = wsdsl.parse(
    """
@kernel
def normalised(A: bf16[M, K], B: bf16[N, K], C: bf16[M, N]):
    for m, n in tiles(M, N):
        acc = zeros(f32[m, n])
        squares = zeros(f32[m])
        for k in tiles(K):
            acc += A[m, k] @ B[n, k]
            x = cast(A[m, k], f32)
            squares += sum(x * x, over=k)
        C[m, n] = acc * rsqrt(squares / cast(K, f32) + 0.00001)
"""
).normalised
SCHEDULES = {
    "default": None,
    "in turns": Schedule(tile=dict(m=128, n=128), mode="pingpong"),
    "cluster": Schedule(tile=dict(m=128, n=128, k=128), cluster=dict(m=2)),
    "stream_k": Schedule(tile=dict(m=128, n=128), scheduler="stream_k"),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("size", [(512, 768, 4096), (300, 200, 1000), (64, 64, 64)])
def test_normalised(size: tuple[int, int, int], schedule: str) -> None:
    rows, columns, depth = size
    torch.manual_seed(0)
    a = torch.randn(rows, depth, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(columns, depth, device="cuda", dtype=torch.bfloat16)
    scale = torch.rsqrt(a.double().square().mean(1, keepdim=True) + 1e-5)
    exact = a.double() @ b.double().T * scale
    found = [KERNEL(a, b, schedule=SCHEDULES[schedule]) for _ in range(8)]
    assert all(torch.equal(found[0], other) for other in found[1:])
    assert ((found[0].double() - exact).norm() / exact.norm()).item() < 0.003
