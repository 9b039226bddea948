"""The views of `tests/views.py` on the GPU, by TMA wherever it can take them."""

from typing import Any

import pytest

from tests.kernels import CASES
from tests.views import VIEWS, View

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu
KERNEL = CASES["batched"].kernel
GUARD = 64


def tensor(view: View, filled: bool) -> tuple[Any, Any]:
    """A view of a buffer of NaN with guards around it, and the buffer."""
    buffer = torch.full((view.size + 2 * GUARD,), float("nan"), device="cuda").bfloat16()
    if filled:
        buffer[GUARD:-GUARD] = torch.randn(view.size, device="cuda").bfloat16()
    return torch.as_strided(buffer, view.shape, view.strides, GUARD + view.offset), buffer


@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str) -> None:
    torch.manual_seed(0)
    (a, _), (b, _), (c, whole) = (
        tensor(v, filled) for v, filled in zip(VIEWS[name], (True, True, False), strict=True)
    )
    KERNEL(a, b, c)
    torch.cuda.synchronize()
    want = a.double() @ b.double().transpose(1, 2)
    assert ((c.double() - want).norm() / want.norm()).item() <= 2**-8
    assert int(whole.isfinite().sum()) == c.numel(), "written outside"


def test_expanded_batches() -> None:
    """One matrix of weights for all batches, as torch.expand gives it."""
    a = torch.randn(5, 200, 136, device="cuda").bfloat16()
    b = torch.randn(72, 136, device="cuda").bfloat16()
    got = KERNEL(a, b.expand(5, 72, 136))
    want = a.double() @ b.double().t()
    assert ((got.double() - want).norm() / want.norm()).item() <= 2**-8


def test_a_batch_of_one() -> None:
    a = torch.randn(200, 136, device="cuda").bfloat16()
    b = torch.randn(72, 136, device="cuda").bfloat16()
    got = KERNEL(a[None], b[None])
    want = a.double() @ b.double().t()
    assert ((got[0].double() - want).norm() / want.norm()).item() <= 2**-8
