"""The last tile overlaps the one before: both compute the same bits, wherever an element lies."""

import re
from typing import Any

import pytest

import wsdsl
from tests.kernels import CASES
from wsdsl import Schedule

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

SCHEDULES = {
    "wide": Schedule(tile=dict(m=128, n=240), consumers=2, mode="cooperative"),
    "narrow": Schedule(tile=dict(m=64, n=80), consumers=1),
    "tall": Schedule(tile=dict(m=256, n=96), consumers=2, mode="cooperative"),
    "columns": Schedule(tile=dict(m=64, n=160), consumers=2, consumer_split="n"),
    "pingpong": Schedule(tile=dict(m=128, n=176), mode="pingpong"),
    "cluster": Schedule(tile=dict(m=128, n=112), mode="cooperative", cluster=dict(n=2)),
    "neighbours": Schedule(
        tile=dict(m=64, n=96), consumers=1, cluster=dict(m=4, n=2), multicast=False
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_same_bits_as_tiles_apart(name: str) -> None:
    m, n, k = 1000, 1544, 1096
    fitted = CASES["gemm"].kernel.compile(schedule=SCHEDULES[name])
    text = fitted.ir("partitioned")
    without = re.sub(r", within=(\([\d, ]+\)|\d+)", "", text)
    assert without != text
    apart = wsdsl.compile_ir(without)
    torch.manual_seed(0)
    a = torch.randn(m, k, device="cuda").bfloat16()
    b = torch.randn(n, k, device="cuda").bfloat16()
    made = [torch.full((m, n), float("nan"), device="cuda").bfloat16() for _ in range(2)]
    for _ in range(5):
        for kernel, c in zip((fitted, apart), made, strict=True):
            c.fill_(float("nan"))
            kernel(a, b, c)
        torch.cuda.synchronize()
        assert torch.equal(*made)
    assert bool((made[0].double() - a.double() @ b.double().t()).abs().max() < 2.0)
