"""Functions over rows and their gradients beside torch's in f64."""

from collections.abc import Callable
from typing import Any

from wsdsl import kernels

Made = Callable[..., Any]
ROUNDED = {"float32": 2.0**-20, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""What results and gradients may be off by, beside the largest of them."""


def functions(torch: Any) -> dict[str, tuple[Made, Made, int]]:
    """Ours, torch's, and how many vectors they take beside rows."""
    f = torch.nn.functional
    return {
        "rmsnorm": (
            lambda x, w: kernels.rmsnorm(x, w, eps=1e-5),
            lambda x, w: f.rms_norm(x, x.shape[-1:], w, 1e-5),
            1,
        ),
        "layernorm": (kernels.layernorm, lambda x, w, b: f.layer_norm(x, x.shape[-1:], w, b), 2),
        "softmax": (kernels.softmax, lambda x: x.softmax(-1), 0),
        "log_softmax": (kernels.log_softmax, lambda x: x.log_softmax(-1), 0),
        "cross_entropy": (
            lambda x: kernels.cross_entropy(x, targets(torch, x)),
            lambda x: f.cross_entropy(x.flatten(0, -2), targets(torch, x).flatten()),
            0,
        ),
    }


def targets(torch: Any, x: Any) -> Any:
    """int64 [...], of which one is ignored."""
    rows = torch.arange(x[..., 0].numel(), device=x.device)
    found = rows * 7 % x.shape[-1]
    found[-1] = -100
    return found.reshape(x.shape[:-1])


def check(torch: Any, name: str, dtype: str, shape: tuple[int, ...], device: str) -> None:
    """Forward and backward, the latter of a gradient that is not contiguous."""
    ours, theirs, vectors = functions(torch)[name]
    drawn = torch.Generator().manual_seed(0)
    given = [
        torch.randn(size, generator=drawn).to(device, getattr(torch, dtype)).requires_grad_()
        for size in (shape, *[shape[-1:]] * vectors)
    ]
    wide = [t.detach().double().requires_grad_() for t in given]
    got, wanted = ours(*given), theirs(*wide)
    weight = torch.randn(shape[-1:], generator=drawn).to(device, got.dtype)
    weight = weight.expand(got.shape) if got.shape else torch.tensor(1.0, device=device)
    got.backward(weight.to(got.dtype))
    wanted.backward(weight.double())
    pairs = [(got, wanted), *((a.grad, b.grad) for a, b in zip(given, wide, strict=True))]
    for made, exact in pairs:
        assert made.shape == exact.shape
        off = (made.double() - exact).abs().max()
        assert off <= ROUNDED[dtype] * exact.abs().max(), (name, float(off))
    assert all(t.grad.dtype == t.dtype for t in given)
