"""Quantised weights on the GPU: every form beside float64 and, to the bit, one-hot activations."""

from typing import Any

import pytest

from tests.quantized.test_product import FORMATS
from wsdsl import config
from wsdsl.kernels import quantized

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

SIZES = [(1, 256, 512), (40, 200, 136), (70, 1030, 331)]
TYPES = {"bf16": "bfloat16", "f16": "float16"}
PAIRS = [(x, f) for f in FORMATS for x in TYPES if (x, f["dtype"]) != ("f16", "mxfp4")]


def normal(*shape: int, seed: int, dtype: str = "float32") -> Any:
    own = torch.Generator(device="cuda").manual_seed(seed)
    made = torch.randn(shape, device="cuda", generator=own) / 8
    return made.to(getattr(torch, dtype))


@pytest.mark.parametrize(
    ("x_type", "form"),
    PAIRS,
    ids=lambda f: f if isinstance(f, str) else " ".join(map(str, f.values())),
)
@pytest.mark.parametrize("sizes", SIZES, ids=repr)
def test_right(sizes: tuple[int, int, int], x_type: str, form: dict[str, Any]) -> None:
    m, n, k = sizes
    w = normal(n, k, seed=1)
    weights = quantized.quantize(w.abs() if form.get("zeros") is False else w, **form)
    x = normal(m, k, seed=2, dtype=TYPES[x_type])
    wide, exact = x.double(), weights.dequantize("f64")
    rounded = "KB" in weights.dims
    once = (2.0**-11 if x_type == "f16" else 2.0**-9) if rounded else 0.0
    bound = (once + (k + 4) * 2.0**-24) * (wide.abs() @ exact.abs().T)
    for given in weights, weights.plain():
        got = quantized.matmul(x, given, out_dtype="f32")
        assert ((got.double() - wide @ exact.T).abs() <= bound).all()


@pytest.mark.parametrize("form", ["i4", "u4", "i8", "f8e4m3", "f8e5m2", "mxfp4", "nvfp4"])
def test_exact_operands(form: str) -> None:
    """Of nvfp4 but for the scale of all weights, which is multiplied behind the sum."""
    weights = quantized.quantize(normal(192, 256, seed=3), form, None if "fp4" in form else 64)
    x = torch.eye(256, device="cuda").bfloat16()
    got = quantized.matmul(x, weights, out_dtype="f32").T
    wanted = weights.dequantize("f32" if weights.scale is not None else "bf16").float()
    assert torch.equal(got, wanted)


def test_what_the_driver_assembles() -> None:
    """Its machine code is looked at on the way (`runtime/loaded_module.py`)."""
    weights, x = (
        quantized.quantize(normal(256, 512, seed=4), "i4", 64),
        normal(16, 512, seed=5, dtype="bfloat16"),
    )
    wanted = quantized.matmul(x, weights, out_dtype="f32")
    with config.override(ptxas="off"):
        assert torch.equal(quantized.matmul(x, weights, out_dtype="f32"), wanted)
