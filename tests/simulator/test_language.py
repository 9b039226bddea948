"""Kernels of many words, read by the frontend and evaluated by the reference."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.frontend.test_language import TEXTS
from wsdsl.frontend.from_source import from_text
from wsdsl.simulator.reference.bound_arrays import pack_nibbles
from wsdsl.simulator.reference.numpy_evaluation import evaluate

BF16, FP8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
TILES = [None, {"m": 7, "n": 5, "k": 6, "q": 4, "t": 3}]


def run(name: str, tile: Any, **arrays: Any) -> None:
    # Blocks of 8, since the arrays are small.
    (kernel,) = from_text(TEXTS[name].replace("// 128", "// 8")).values()
    evaluate(kernel, arrays, tile)


def near(got: Any, wanted: Any) -> None:
    error = np.abs(got.astype(np.float64) - wanted)
    assert np.all(error <= 2.0**-7 * np.abs(wanted).max())


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("name", ["attention", "causal_attention"])
def test_attention(name: str, tile: Any) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 2, 13, 8)).astype(BF16) for _ in range(3))
    o = np.full_like(q, np.nan)
    run(name, tile, Q=q, K=k, V=v, O=o, scale=0.3)
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    p = np.exp2(np.einsum("bhsd,bhtd->bhst", q, k) * 0.3)
    p = np.tril(p) if name == "causal_attention" else p
    near(o, np.einsum("bhst,bhtd->bhsd", p / p.sum(-1, keepdims=True), v))


@pytest.mark.parametrize("tile", TILES)
def test_groups_are_multiplied_by_their_own_weights(tile: Any) -> None:
    rng = np.random.default_rng(3)
    offset = np.array([0, 7, 7, 20], np.int32)
    a, w = (rng.standard_normal(s).astype(BF16) for s in ((20, 16), (3, 9, 16)))
    c = np.full((20, 9), np.nan, BF16)
    run("grouped_gemm", tile, A=a, W=w, offset=offset, C=c)
    own = w.astype(np.float64)[np.repeat(np.arange(3), np.diff(offset))]
    near(c, np.einsum("mk,mnk->mn", a.astype(np.float64), own))


@pytest.mark.parametrize("tile", TILES)
def test_unweight(tile: Any) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((10, 16)).astype(BF16)
    w = rng.standard_normal((12, 16)).astype(BF16)
    bits = w.view(np.uint16)
    w = np.where((bits >> 7 & 255) > 120, w, BF16(1))
    bits = w.view(np.uint16)
    palette, codes = np.unique(bits >> 7 & 255, return_inverse=True)
    whole = np.zeros(16, np.uint8)
    whole[: len(palette)] = palette
    packed = np.zeros((12, 8), np.uint8)
    pack_nibbles(codes.reshape(w.shape).astype(np.uint8), packed)
    low = (bits >> 8 & 128 | bits & 127).astype(np.uint8)
    y = np.full((10, 12), np.nan, BF16)
    run("unweight_gemm", tile, X=x, sign_mantissa=low, exponent=packed, palette=whole, Y=y)
    near(y, x.astype(np.float64) @ w.astype(np.float64).T)


@pytest.mark.parametrize("tile", TILES)
def test_block_scales(tile: Any) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((11, 20)).astype(FP8), rng.standard_normal((18, 20)).astype(FP8)
    a_scale = rng.random((11, 3)).astype(np.float32)
    b_scale = rng.random((3, 3)).astype(np.float32)
    c = np.full((11, 18), np.nan, BF16)
    run("fp8_block_scaled", tile, A=a, B=b, a_scale=a_scale, b_scale=b_scale, C=c)
    whole_a = a.astype(np.float64) * a_scale.repeat(8, 1)[:, :20]
    whole_b = b.astype(np.float64) * b_scale.repeat(8, 0)[:18].repeat(8, 1)[:, :20]
    near(c, whole_a @ whole_b.T)
