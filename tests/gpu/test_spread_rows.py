"""Rows of products that the CTAs of a cluster reduce together, on the GPU."""

from typing import Any

import pytest

from tests.lowering.test_spread_rows import KERNELS, SCHEDULES
from wsdsl import Schedule

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu
SIZES = [(4096, 2048, 512), (1000, 1000, 200), (130, 2048, 2048), (16384, 500, 1024)]
OTHERS = {
    "chosen": None,
    "columns shared": SCHEDULES["columns shared"],
    "one consumer": Schedule(consumers=1),
    "eight": SCHEDULES["eight"],
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("schedule", OTHERS)
def test_rmsnorm_of_a_product(size: tuple[int, int, int], schedule: str) -> None:
    M, N, K = size
    x, w = (torch.randn(n, K, device="cuda", dtype=torch.bfloat16) * 0.3 for n in (M, N))
    gain = torch.randn(N, device="cuda", dtype=torch.bfloat16)
    y = torch.empty(M, N, device="cuda", dtype=torch.bfloat16)
    KERNELS.normed(x, w, gain, y, schedule=OTHERS[schedule])
    product = x.double() @ w.double().T
    wanted = product * torch.rsqrt(product.square().mean(1, True) + 1e-6) * gain.double()
    torch.testing.assert_close(y.double(), wanted, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("size", SIZES)
def test_softmax_of_a_product(size: tuple[int, int, int]) -> None:
    M, N, K = size
    x, w = (torch.randn(n, K, device="cuda", dtype=torch.bfloat16) * 0.3 for n in (M, N))
    y, most = (torch.empty(s, device="cuda") for s in ((M, N), (M,)))
    KERNELS.probabilities(x, w, y, most)
    product = x.double() @ w.double().T
    torch.testing.assert_close(y.double(), product.softmax(1), rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(most.double(), product.amax(1), rtol=1e-3, atol=1e-3)
