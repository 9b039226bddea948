"""Kernels over rows on the GPU, forward and backward, beside torch's in f64."""

from typing import Any

import pytest

from tests.rows.of_torch import ROUNDED, check, functions
from wsdsl import kernels

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

SHAPES = [(3, 70, 1024), (200, 4099), (5, 40000), (7, 3)]


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
@pytest.mark.parametrize("dtype", ROUNDED)
@pytest.mark.parametrize("name", functions(torch))
def test_gradients(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    check(torch, name, dtype, shape, "cuda")


@pytest.mark.parametrize("dtype", ROUNDED)
@pytest.mark.parametrize("codes", ["float8_e4m3fn", "float8_e5m2", "int8"])
def test_quantize(codes: str, dtype: str) -> None:
    """Half a step of the codes beside the largest of a row, and its largest to the bit."""
    step = {"float8_e4m3fn": 2.0**-4, "float8_e5m2": 2.0**-3, "int8": 0.5 / 127}[codes]
    x = torch.randn(300, 4096, device="cuda").to(getattr(torch, dtype))
    got, scales = kernels.quantize(x, codes)
    assert got.dtype == getattr(torch, codes)
    most = x.double().abs().amax(-1, keepdim=True)
    again = got.double() * scales.double()[:, None]
    assert ((again - x.double()).abs() <= step * (1 + 1e-5) * most).all()
    assert torch.allclose(again.abs().amax(-1, keepdim=True), most, rtol=1e-6)


def test_runs_give_the_same_bits() -> None:
    x = torch.randn(5000, 512, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(512, device="cuda")
    y, rstd = kernels.rmsnorm_with_rstd(x, w)
    first = kernels.rmsnorm_weight_backward(y, x, w, rstd)
    for _ in range(5):
        assert torch.equal(kernels.rmsnorm_weight_backward(y, x, w, rstd), first)


def test_cross_entropy_in_place() -> None:
    x = torch.randn(64, 5000, device="cuda", dtype=torch.bfloat16)
    targets = torch.randint(5000, (64,), device="cuda")
    losses, lse = kernels.cross_entropy_with_lse(x, targets)
    apart = kernels.cross_entropy_backward(torch.ones_like(losses), x, targets, lse)
    made = kernels.cross_entropy_backward(torch.ones_like(losses), x, targets, lse, out=x)
    assert made is x and torch.equal(x, apart)


@pytest.mark.parametrize("scales", ["float32", "float8_e8m0fnu"])
def test_quantize_blocks(scales: str) -> None:
    x = torch.randn(300, 4100, device="cuda", dtype=torch.bfloat16)
    codes, found = kernels.quantize(x, block=128, scale_dtype=scales)
    assert found.shape == (300, 33)
    own = found.double().repeat_interleave(128, 1)[:, :4100]
    most = 448 * (1 + 1e-6) * own
    assert (x.double().abs() <= most).all()
    # Codes of 256 to 448 are 32 apart.
    assert ((codes.double() * own - x.double()).abs() <= 16.001 * own).all()
