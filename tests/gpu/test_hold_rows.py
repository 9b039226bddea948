"""Rows that are held in registers, of lengths that lanes, warps, consumers and clusters share."""

from typing import Any

import pytest

from tests.lowering.row_kernels import KERNELS
from wsdsl import Schedule

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

LENGTHS = [16, 40, 128, 200, 1000, 1024, 2048, 3000, 4096, 6144, 8192, 8200, 12000, 16384]
LENGTHS += [20000, 32768, 50000, 65536, 100000, 131072, 200000, 262144]


def drawn(*shape: int, dtype: Any = torch.float32) -> Any:
    return (torch.randn(*shape, device="cuda") + 0.25).to(dtype)


@pytest.mark.parametrize("N", LENGTHS)
def test_rmsnorm(N: int) -> None:
    for M in (1, 37, 700 if N < 65536 else 150):
        x, w = drawn(M, N, dtype=torch.bfloat16), drawn(N, dtype=torch.bfloat16)
        wanted = torch.nn.functional.rms_norm(x.double(), (N,), w.double(), 1e-6)
        for _ in range(3):
            torch.testing.assert_close(KERNELS.rmsnorm(x, w).double(), wanted, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("N", LENGTHS)
def test_softmax(N: int) -> None:
    for M in (1, 300 if N < 65536 else 150):
        x, most = drawn(M, N), torch.empty(M, device="cuda")
        y = torch.empty_like(x)
        KERNELS.softmax(x, y, most)
        wanted = torch.softmax(x.double(), 1)
        assert (most == x.max(1).values).all()
        torch.testing.assert_close(y.double(), wanted, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("N", [200, 1000, 9000, 40000])
def test_counts_are_exact(N: int) -> None:
    x = drawn(65, N, dtype=torch.float16)
    y, s = torch.empty_like(x), torch.empty(65, dtype=torch.int32, device="cuda")
    KERNELS.in_one_tile(x, y, s)
    assert (s == (x.float() > 0.5).sum(1)).all()
    assert (y == (x.float() - x.float().min(1, keepdim=True).values).half()).all()


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(tile=dict(m=16, n=1024)),
        Schedule(tile=dict(m=2, n=1024)),
        Schedule(tile=dict(m=1, n=2048), consumers=2, consumer_split="n"),
        Schedule(tile=dict(m=1, n=1024), consumers=4, consumer_split="n"),
        Schedule(tile=dict(m=1, n=256), cluster=dict(n=4)),
        Schedule(tile=dict(m=2, n=512), consumers=2, consumer_split="n", cluster=dict(n=2)),
        Schedule(tile=dict(m=1, n=1024), scheduler="persistent"),
        Schedule(tile=dict(m=1, n=512), cluster=dict(n=2), scheduler="persistent"),
    ],
    ids=repr,
)
def test_every_way_to_share_rows(schedule: Schedule) -> None:
    x, w = drawn(501, 1000, dtype=torch.bfloat16), drawn(1000, dtype=torch.bfloat16)
    wanted = torch.nn.functional.rms_norm(x.double(), (1000,), w.double(), 1e-6)
    for _ in range(5):
        made = KERNELS.rmsnorm(x, w, schedule=schedule)
        torch.testing.assert_close(made.double(), wanted, rtol=1e-2, atol=1e-2)
