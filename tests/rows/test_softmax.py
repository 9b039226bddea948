"""`softmax`, `log_softmax` and their gradients in the simulator, against float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.rows.expected import CASES, TYPES, close, drawn, wide
from wsdsl import LaunchError
from wsdsl.kernels import log_softmax, log_softmax_backward, softmax, softmax_backward

UNIT = 2.0**-24


def exact(x: Any) -> tuple[Any, Any, Any]:
    """Of float64: softmax, log_softmax, and the sizes of what exponents are made of."""
    x = wide(x)
    with np.errstate(invalid="ignore", divide="ignore"):
        most = x.max(-1, keepdims=True, initial=-np.inf)
        total = np.exp(x - most).sum(-1, keepdims=True)
        logs = x - most - np.log(total)
        return np.exp(x - most) / total, logs, np.where(np.isfinite(x - most), most - x, 0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("shape", "dtype"), CASES)
def test_right(shape: tuple[int, int], dtype: str) -> None:
    x = drawn(*shape, dtype=dtype) * np.asarray(4, TYPES[dtype])
    y, logs, depth = exact(x)
    got, got_logs = softmax(x), log_softmax(x)
    assert got.dtype == got_logs.dtype == x.dtype
    assert close(got, y, y * (x.shape[1] + 2 * depth + 8) * UNIT, dtype)
    assert close(got_logs, logs, (x.shape[1] + depth + 2 * abs(logs) + 8) * UNIT, dtype)


@pytest.mark.parametrize(("kernel", "which"), [(softmax, 0), (log_softmax, 1)])
def test_infinities_and_nan(kernel: Callable[..., Any], which: int) -> None:
    """-inf among numbers takes no part, be it a tile of them in front."""
    x = drawn(6, 400, dtype="bf16")
    x[0, :300], x[1, 7], x[2], x[3, 9], x[4, 390] = -np.inf, -np.inf, -np.inf, np.inf, np.nan
    wanted = exact(x)[which]
    assert np.isnan(wanted[2:5]).all()
    got = kernel(x, out_dtype="f32")
    assert np.array_equal(np.isnan(got), np.isnan(wanted))
    assert np.allclose(got, wanted, rtol=1e-4, equal_nan=True)


@pytest.mark.sampled
@pytest.mark.parametrize(("shape", "dtype"), CASES)
def test_gradients(shape: tuple[int, int], dtype: str) -> None:
    """Of results as they were rounded."""
    n, g = shape[1], drawn(*shape, seed=1, dtype=dtype)
    y, logs = (f(drawn(*shape)).astype(TYPES[dtype]) for f in (softmax, log_softmax))
    terms, size = wide(g) * wide(y), abs(wide(g))
    sums, sizes = terms.sum(-1, keepdims=True), abs(terms).sum(-1, keepdims=True)
    bound = (n + 4) * UNIT * (size + sizes) * wide(y)
    assert close(softmax_backward(g, y), (wide(g) - sums) * wide(y), bound, dtype)
    p, total = np.exp(wide(logs)), wide(g).sum(-1, keepdims=True)
    bound = (n + 16) * UNIT * (size + p * size.sum(-1, keepdims=True))
    assert close(log_softmax_backward(g, logs), wide(g) - p * total, bound, dtype)


def test_shapes_and_outputs() -> None:
    x = drawn(2, 3, 40, dtype="f16")
    y = softmax(x, out_dtype="f32")
    assert y.shape == x.shape and np.allclose(y.sum(-1), 1, atol=1e-5)
    assert np.array_equal(softmax(x[1, 2], "f32"), y[1, 2])
    out = np.zeros_like(y)
    assert softmax_backward(x, y, out=out) is out and abs(out.sum(-1)).max() < 1e-5
    with pytest.raises(LaunchError, match=r"grad has shape \(3, 40\), expected \(2, 3, 40\)"):
        softmax_backward(x[0], y)
