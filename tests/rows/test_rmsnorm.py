"""`rmsnorm` and its gradients in the simulator, against float64."""

from typing import Any

import numpy as np
import pytest

from tests.case_data import rejects
from tests.rows.expected import CASES, at_limits, close, drawn, norm_gradient, normalised, wide
from wsdsl import LaunchError
from wsdsl.kernels import rmsnorm, rmsnorm_backward, rmsnorm_weight_backward, rmsnorm_with_rstd

EPS = 1e-6
UNIT = 2.0**-24


@pytest.mark.parametrize(("shape", "dtype"), CASES)
def test_right(shape: tuple[int, int], dtype: str) -> None:
    n = shape[1]
    x, w = drawn(*shape, dtype=dtype), drawn(n, seed=1, dtype=dtype)
    y, rstd = rmsnorm_with_rstd(x, w, EPS)
    hat, _, exact = normalised(x, EPS, centred=False)
    bound = (n / 2 + 8) * UNIT
    assert y.dtype == x.dtype and close(y, hat * wide(w), bound * abs(hat * wide(w)), dtype)
    assert not n or close(rstd, exact[:, 0], bound * exact[:, 0])


@pytest.mark.parametrize(("n", "dtype"), [(1, "f32"), (131, "bf16"), (4099, "f32")])
def test_the_range_that_is_stated(n: int, dtype: str) -> None:
    for eps in 0.0, EPS:
        hat, _, _ = normalised(x := at_limits(dtype, n), eps, centred=False)
        assert close(rmsnorm(x, eps=eps), hat, (n / 2 + 8) * UNIT * abs(hat), dtype)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("shape", "dtype"), CASES)
def test_gradients(shape: tuple[int, int], dtype: str) -> None:
    m, n = shape
    x, g = drawn(*shape, dtype=dtype), drawn(*shape, seed=1, dtype=dtype)
    w = drawn(n, seed=2)
    hat, _, rstd = normalised(x, EPS, centred=False)
    given = g, x, w, rstd[:, 0].astype(np.float32)
    slope = wide(g) * wide(w)
    size = (abs(slope) + abs(hat) * abs(slope * hat).sum(-1, keepdims=True) / max(1, n)) * rstd
    wanted = norm_gradient(slope, hat, rstd, centred=False)
    assert close(rmsnorm_backward(*given), wanted, (n + 8) * UNIT * size, dtype)
    terms = wide(g) * hat
    bound = (m + 8) * UNIT * abs(terms).sum(0)
    assert close(rmsnorm_weight_backward(*given), terms.sum(0), bound)


def test_what_may_be_left_out_and_given() -> None:
    x, w = drawn(2, 3, 40, dtype="bf16"), drawn(40, seed=1, dtype="f16")
    plain = rmsnorm(x, out_dtype="f32")
    assert plain.shape == x.shape and plain.dtype == np.float32
    assert np.array_equal(rmsnorm(x[1, 2], out_dtype="f32"), plain[1, 2])
    assert np.allclose(rmsnorm(x, w, out_dtype="f32"), plain * w, rtol=1e-6)
    out = np.zeros(x.shape, np.float16)
    assert rmsnorm(x, w, out=out) is out and np.allclose(out, plain * w, rtol=1e-3)
    assert rmsnorm(x, eps=1.0, out_dtype="f32").max() < plain.max()


def test_strided_rows_are_read_as_they_are() -> None:
    x = drawn(6, 48, dtype="bf16")
    assert np.array_equal(rmsnorm(x[::2, 8:40]), rmsnorm(x[::2, 8:40].copy()))


def test_infinity_and_nan() -> None:
    x = drawn(3, 200)
    x[0, 7], x[1, 150] = np.inf, np.nan
    y = rmsnorm(x)
    assert np.isnan(y[0, 7]) and not y[0, :7].any() and np.isnan(y[1]).all()
    assert np.isfinite(y[2]).all()


def test_refusals() -> None:
    x: Any = drawn(4, 32)
    rejects(r"x is i32, expected f32, f16, bf16", rmsnorm, x.astype(np.int32))
    rejects(r"weight has shape \(31,\), expected \(32,\)", rmsnorm, x, x[0, 1:])
    rejects(r"x has shape \(\), expected \[..., N\]", rmsnorm, x[0, 0:1].reshape(()))
    with pytest.raises(LaunchError, match=r"out has shape \(32, 4\).*\n.*contiguous .*\(4, 32\)"):
        rmsnorm(x, out=np.zeros((32, 4), np.float32))
    rejects("the result is i8, expected f32, f16, bf16", rmsnorm, x, out_dtype="i8")
    with pytest.raises(LaunchError, match=r"grad has shape \(3, 32\), expected \(4, 32\)"):
        rmsnorm_backward(x[:3], x, None, x[:, 0])
    rejects(r"rstd has shape \(3,\), expected \(4,\)", rmsnorm_backward, x, x, None, x[:3, 0])
