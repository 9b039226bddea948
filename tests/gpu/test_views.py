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
