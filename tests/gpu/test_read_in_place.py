"""Operands that threads read in their slots: rows normalised beside the product, on the card."""

from typing import Any

import pytest

from tests.lowering.test_read_in_place import kernel
from wsdsl import Schedule

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

KERNEL = kernel()
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
    scale = torch.rsqrt(a.double().square().mean(1, keepdim=True) + 0.01)
    exact = a.double() @ b.double().T * scale
    found = [KERNEL(a, b, schedule=SCHEDULES[schedule]) for _ in range(8)]
    assert all(torch.equal(found[0], other) for other in found[1:])
    assert ((found[0].double() - exact).norm() / exact.norm()).item() < 0.003
