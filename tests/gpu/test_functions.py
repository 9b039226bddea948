"""Functions whose results are rounded to 16 bits: the card's own instructions, on all that bf16 and
f16 can tell apart."""

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import wsdsl

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

TEXT = """
@kernel
def f(X: f32[M, N], R: OUT[M, N], Y: OUT[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = WHAT
"""
ERFC = np.vectorize(math.erfc, otypes=[np.float64])
FUNCTIONS: dict[str, Any] = {
    "exp": np.exp,
    "gelu": lambda x: x * ERFC(-x / math.sqrt(2)) / 2,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
}
BITS = {"bf16": 8, "f16": 11}
DTYPES: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}


@pytest.mark.parametrize("out", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("residual", [False, True])
def test_three_quarters_of_a_unit(name: str, out: str, residual: bool) -> None:
    """Half a unit of the last place by rounding, and half of that by the function."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(512, 512)).astype(np.float32) * 3
    x[0, :8] = 0.0, -0.0, 80.0, -80.0, 1e-30, -1e-30, 11.0, -11.0
    r = (rng.normal(size=x.shape) if residual else np.zeros(x.shape)).astype(DTYPES[out])
    y = np.zeros(x.shape, DTYPES[out])
    what = f"{name}(X[m, n])" + (" + cast(R[m, n], f32)" if residual else "")
    kernel = wsdsl.parse(TEXT.replace("OUT", out).replace("WHAT", what)).f
    assert f"bits={BITS[out]}" in kernel.compile().ir()
    kernel(x, r, y)
    with np.errstate(over="ignore"):
        exact = FUNCTIONS[name](x.astype(np.float64))
    want = exact + r.astype(np.float64)
    fits = np.abs(want) < float(ml_dtypes.finfo(DTYPES[out]).max)
    smallest = float(ml_dtypes.finfo(DTYPES[out]).smallest_normal)

    def unit(value: np.ndarray) -> np.ndarray:
        return 2.0 ** (np.floor(np.log2(np.maximum(np.abs(value), smallest))) + 1 - BITS[out])

    allowed = unit(want) / 2 + unit(exact) / 4 + 2.0**-22
    off = np.abs(y.astype(np.float64) - want)
    assert np.all(off[fits] <= allowed[fits])
