"""`quantized.matmul` in the simulator, against float64 of the weights that codes stand for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.case_data import rejects
from wsdsl import CompileError, LaunchError, Packed, Schedule
from wsdsl.kernels import quantized
from wsdsl.kernels.quantized.quantized_matmul import arranged

BF16 = ml_dtypes.bfloat16
TYPES = {"bf16": BF16, "f16": np.float16}
FORMATS: list[dict[str, Any]] = [
    *({"dtype": "i4", "group": g} for g in (None, 32, 64, 128)),
    *({"dtype": "u4", "group": g} for g in (None, 32, 128)),
    {"dtype": "u4", "per_tensor": True},
    {"dtype": "u4", "zeros": False},
    *({"dtype": d, "group": g} for d in ("i8", "u8") for g in (None, 64)),
    *({"dtype": d, "group": g} for d in ("f8e4m3", "f8e5m2") for g in (None, 128)),
    {"dtype": "f8e4m3", "per_tensor": True},
    {"dtype": "f8e4m3", "group": (64, 128), "scale_dtype": "f32"},
    {"dtype": "f4e2m1", "group": 32},
    {"dtype": "nvfp4"},
    {"dtype": "mxfp4"},
]


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) / 8).astype(dtype)


def close(got: Any, x: Any, weights: quantized.Weights) -> bool:
    """Within what is stated: of sums in f32, and of weights that are rounded to the type of x where
    their scales are no whole column's.
    """
    w, wide = weights.dequantize("f64"), x.astype(np.float64)
    exact = "KB" not in weights.dims
    once = 0.0 if exact else 2.0**-11 if x.dtype == np.float16 else 2.0**-9
    bound = (once + (x.shape[-1] + 4) * 2.0**-24) * (abs(wide) @ abs(w).T)
    return bool(np.all(abs(got - wide @ w.T) <= bound))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "plain"])
@pytest.mark.parametrize(
    ("x_type", "form"),
    [(x, f) for f in FORMATS for x in TYPES if (x, f["dtype"]) != ("f16", "mxfp4")],
    ids=lambda f: f if isinstance(f, str) else " ".join(map(str, f.values())),
)
def test_right(x_type: str, form: dict[str, Any], packed: bool) -> None:
    w = abs(normal(72, 160)) if form.get("zeros") is False else normal(72, 160)
    weights = quantized.quantize(w, **form, pack=packed)
    x = normal(9, 160, seed=1, dtype=TYPES[x_type])
    assert weights.is_packed == packed
    for rows in (x, x[:1]):
        assert close(quantized.matmul(rows, weights, out_dtype="f32"), rows, weights)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("form", ["i4", "u4", "i8", "f8e4m3", "mxfp4", "nvfp4"])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (8, 3), (65, 129)])
def test_any_sizes_and_leading_dimensions(n: int, k: int, form: str) -> None:
    """Groups that K does not divide by end with it."""
    group = None if "fp" in form else 32
    weights, x = quantized.quantize(normal(n, k), form, group), normal(2, 3, k, seed=1, dtype=BF16)
    got = quantized.matmul(x, weights, out_dtype="f32")
    assert got.shape == (2, 3, n) and close(got, x, weights)
    assert np.array_equal(quantized.matmul(x[0, 0], weights, out_dtype="f32"), got[0, 0])
    assert quantized.matmul(x[:, :0], weights).shape == (2, 0, n)


def test_exact_operands() -> None:
    """A one-hot row takes one weight: what `dequantize` says, to the bit."""
    weights = quantized.quantize(normal(64, 96), "u4", 32)
    got = quantized.matmul(np.eye(96, dtype=BF16), weights, out_dtype="f32")
    assert np.array_equal(got.T, weights.dequantize("bf16").astype(np.float32))


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "sigmoid", "tanh"])
def test_epilogues(activation: Any) -> None:
    from tests.matmul_cases import ACTIVATIONS

    weights, x = quantized.quantize(normal(24, 64), "i8"), normal(2, 5, 64, seed=1, dtype=BF16)
    bias, residual = normal(24, seed=2), normal(2, 5, 24, seed=3, dtype=BF16)
    got = quantized.matmul(x, weights, bias, activation, residual, "f32")
    sums = x.astype(np.float64) @ weights.dequantize("f64").T + bias
    assert np.allclose(got, ACTIVATIONS[activation](sums) + residual.astype(np.float64), atol=2e-5)


def test_outputs() -> None:
    weights, x = quantized.quantize(normal(24, 32), "i4", 32), normal(5, 32, seed=1, dtype=BF16)
    exact = quantized.matmul(x, weights, out_dtype="f32")
    assert np.array_equal(quantized.matmul(x, weights), exact.astype(BF16))
    half = quantized.matmul(x.astype(np.float16), weights)
    assert half.dtype == np.float16 and np.allclose(half, exact, atol=2e-3)
    out = np.zeros((5, 24), np.float16)
    assert quantized.matmul(x, weights, out=out) is out
    assert np.array_equal(out, exact.astype(np.float16))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("decode", ["registers", "smem"])
@pytest.mark.parametrize("form", ["i4", "u4", "f8e4m3", "nvfp4"])
@pytest.mark.parametrize("rows", [4, 1])
def test_proved(rows: int, form: str, decode: Any) -> None:
    weights = quantized.quantize(normal(64, 128), form, None if "fp4" in form else 128)
    _, kernel, _ = arranged(normal(rows, 128, dtype=BF16), weights)
    sizes = {"M": 16, "N": 512, "K": 1024, "KB": 64 if "fp4" in form else 8}
    known = {dim: sizes[dim] for dim in kernel.dims}
    schedule = Schedule(operand_transform=decode) if "M" in known else None
    assert kernel.compile(schedule, **known).prove()


def test_refusals() -> None:
    weights, x = quantized.quantize(normal(8, 32), "i4"), normal(4, 32, dtype=BF16)
    rejects(r"weights is a ndarray.* quantized.weights", quantized.matmul, x, x)
    rejects(r"x has shape \(4, 30\), expected \[..., 32\]", quantized.matmul, x[:, :30], weights)
    rejects(r"x is f32, expected bf16 or f16", quantized.matmul, x.astype(np.float32), weights)
    rejects(r"bias has shape \(4,\), expected \(8,\)", quantized.matmul, x, weights, normal(4))
    with pytest.raises(LaunchError, match="activation is 'swish', expected relu"):
        quantized.matmul(x, weights, activation="swish")  # pyright: ignore[reportArgumentType]
    with pytest.raises(LaunchError, match=r"out has shape \(8, 4\).*\n.*contiguous .*\(4, 8\)"):
        quantized.matmul(x, weights, out=np.zeros((8, 4), BF16))
    with pytest.raises(LaunchError, match="different types: bf16 and f32"):
        quantized.matmul(x, weights, out=np.zeros((4, 8), BF16), out_dtype="f32")
    data = np.zeros(2064, np.uint8)
    data = data[4 - data.ctypes.data & 15 :][:2048]
    moved = replace(weights, codes=Packed(data, (8, 32), "i4"))
    with pytest.raises(CompileError, match="W is packed, and its data begin at no multiple"):
        quantized.matmul(x[:1], moved)
    mx, half = quantized.quantize(normal(8, 64), "mxfp4"), normal(4, 64, dtype=np.float16)
    rejects(r"f8e8m0 .* the range of f16\n.*x as bf16", quantized.matmul, half, mx)


def test_the_page_shows_its_text() -> None:
    page = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text()
    weights, x = quantized.quantize(normal(8, 128), "u4", 32), normal(4, 128, dtype=BF16)
    _, kernel, _ = arranged(x, weights, normal(8, dtype=BF16), "silu")
    assert kernel.source in page
