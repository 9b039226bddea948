"""Weights and activations of torch and JAX on the CPU: the same numbers, of their own arrays."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.quantized.test_checkpoints import CASES, save
from wsdsl.kernels import lossless, quantized
from wsdsl.kernels.host_arrays import on_host, placed_like

BF16 = ml_dtypes.bfloat16


@pytest.fixture(params=["torch", "jax.numpy"])
def like(request: pytest.FixtureRequest, import_optional: Any) -> Any:
    """An array of the framework."""
    return import_optional(request.param).zeros(1)


def normal(*shape: int, seed: int = 0) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) / 8).astype(BF16)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("form", ["i4", "u4", "u8", "f8e4m3", "f8e5m2", "nvfp4", "mxfp4"])
def test_quantised(form: str, like: Any) -> None:
    w, x, residual = normal(72, 130), normal(5, 130, seed=1), normal(5, 72, seed=2)
    ours = quantized.quantize(w, form, None if "fp4" in form else 64)
    wanted = quantized.matmul(x, ours, activation="silu", residual=residual)
    theirs = quantized.quantize(placed_like(w, like), form, None if "fp4" in form else 64)
    for weights in theirs, theirs.plain(), ours.to(like):
        got = quantized.matmul(
            placed_like(x, like), weights, activation="silu", residual=placed_like(residual, like)
        )
        assert type(got) is type(like)
        assert on_host(got).tobytes() == wanted.tobytes()
    assert np.array_equal(on_host(theirs.dequantize("f32")), ours.dequantize("f32"))


def test_bytes_of_scales(like: Any) -> None:
    ours, x = quantized.quantize(normal(72, 64), "mxfp4", pack=False), normal(5, 64, seed=1)
    codes, scales = (placed_like(a.view(np.uint8), like) for a in (ours.codes, ours.scales))
    for said in "mxfp4", "f4e2m1":
        got = quantized.matmul(placed_like(x, like), quantized.weights(codes, scales, dtype=said))
        assert on_host(got).tobytes() == quantized.matmul(x, ours).tobytes()


def test_lossless(like: Any) -> None:
    w, x = normal(72, 130), normal(5, 130, seed=1)
    packed = lossless.pack(placed_like(w, like))
    got = lossless.matmul(placed_like(x, like), packed)
    assert type(got) is type(like)
    assert on_host(got).tobytes() == lossless.matmul(x, lossless.pack(w)).tobytes()
    assert on_host(packed.unpack()).tobytes() == w.tobytes()


def test_weights_in_act_order(like: Any, tmp_path: Path) -> None:
    held = {f"w.{name}": x for name, x in CASES["gptq act-order zeros"][0].items()}
    ours, x = quantized.load(save(tmp_path / "w", held), "w"), normal(5, 128)
    for weights in quantized.load(tmp_path / "w", "w", like), ours.to(like).plain():
        got = quantized.matmul(placed_like(x, like), weights)
        assert on_host(got).tobytes() == quantized.matmul(x, ours).tobytes()
    if hasattr(like, "requires_grad_"):
        given = placed_like(x, like).requires_grad_()
        quantized.matmul(given, weights)[:, 7].sum().backward()
        assert on_host(given.grad).tobytes() == ours.dequantize("bf16")[[7] * 5].tobytes()
