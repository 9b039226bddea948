"""torch's gradients of functions over rows, on the CPU."""

from typing import Any

import pytest

from tests.rows.of_torch import check
from wsdsl import LaunchError
from wsdsl.kernels import cross_entropy, rmsnorm


@pytest.fixture
def torch(import_optional: Any) -> Any:
    return import_optional("torch")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "name", ["rmsnorm", "layernorm", "softmax", "log_softmax", "cross_entropy"]
)
def test_gradients(torch: Any, name: str, dtype: str) -> None:
    check(torch, name, dtype, (2, 5, 136), "cpu")


def test_what_is_recorded(torch: Any) -> None:
    x = torch.randn(4, 32, requires_grad=True)
    w = torch.randn(32)
    rmsnorm(x, w).sum().backward()
    assert x.grad is not None and w.grad is None
    rmsnorm(x.detach(), w.requires_grad_()).sum().backward()
    assert w.grad is not None
    with pytest.raises(LaunchError, match="rmsnorm_backward has no gradient"):
        torch.autograd.grad(rmsnorm(x, w).sum(), x, create_graph=True)
    with torch.no_grad():
        assert not rmsnorm(x, w).requires_grad


def test_targets_of_64_bits(torch: Any) -> None:
    """One that 32 bits do not hold is no class, also where every other one of an array is given."""
    given = torch.tensor([3, 2**32 + 3, 2**32 - 100, -(2**32) + 5, -100, 2**40, 39])
    x = torch.randn(7, 40, requires_grad=True)
    losses = cross_entropy(x, given.repeat_interleave(2)[::2], "none")
    losses.sum().backward()
    wrong = torch.tensor([False, True, True, True, False, True, False])
    assert x.grad is not None and losses.isnan().equal(wrong) and losses[4] == 0
    assert x.grad.isnan().all(1).equal(wrong) and x.grad[~wrong].isfinite().all()
