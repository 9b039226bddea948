"""`layernorm` and its gradients in the simulator, against float64."""

import numpy as np
import pytest

from tests.rows.expected import (
    CASES,
    TYPES,
    at_limits,
    close,
    drawn,
    norm_gradient,
    normalised,
    wide,
)
from wsdsl import LaunchError
from wsdsl.kernels import (
    layernorm,
    layernorm_backward,
    layernorm_bias_backward,
    layernorm_weight_backward,
    layernorm_with_statistics,
)

EPS = 1e-5
UNIT = 2.0**-24


@pytest.mark.parametrize(("shape", "dtype"), CASES)
def test_right(shape: tuple[int, int], dtype: str) -> None:
    """Also where elements are far from 0: their mean is taken away before they are squared."""
    n = shape[1]
    x = drawn(*shape, dtype=dtype) + np.asarray(40, TYPES[dtype])
    w, b = drawn(n, seed=1, dtype=dtype), drawn(n, seed=2, dtype=dtype)
    y, centre, rstd = layernorm_with_statistics(x, w, b, EPS)
    hat, exact, deviation = normalised(x, EPS, centred=True)
    size = abs(hat) + 41 * deviation
    bound = (n + 8) * UNIT * (size * abs(wide(w)) + abs(wide(b)))
    assert y.dtype == x.dtype and close(y, hat * wide(w) + wide(b), bound, dtype)
    assert not n or close(centre, exact[:, 0], n * UNIT * abs(exact[:, 0]))
    assert not n or np.allclose(rstd, deviation[:, 0], rtol=2e-6)


@pytest.mark.parametrize(("n", "dtype"), [(131, "f32"), (131, "bf16"), (4099, "f32")])
def test_the_range_that_is_stated(n: int, dtype: str) -> None:
    for eps in 0.0, EPS:
        for centre in 0, 8:
            x = wide(at_limits(dtype, n))
            x = (x + centre * x.std(-1, keepdims=True)).astype(TYPES[dtype])
            hat, _, deviation = normalised(x, eps, centred=True)
            size = abs(hat) + abs(wide(x)).max(-1, keepdims=True) * deviation
            assert close(layernorm(x, eps=eps), hat, (n + 8) * UNIT * size, dtype)


@pytest.mark.sampled
@pytest.mark.parametrize(("shape", "dtype"), CASES)
def test_gradients(shape: tuple[int, int], dtype: str) -> None:
    m, n = shape
    x, g = drawn(*shape, dtype=dtype), drawn(*shape, seed=1, dtype=dtype)
    w = drawn(n, seed=2)
    hat, centre, rstd = normalised(x, EPS, centred=True)
    statistics = centre[:, 0].astype(np.float32), rstd[:, 0].astype(np.float32)
    slope = wide(g) * wide(w)
    sums = (abs(slope) + abs(hat) * abs(slope * hat)).sum(-1, keepdims=True)
    size = (abs(slope) + (sums + abs(hat)) / max(1, n)) * rstd * (1 + abs(centre) * rstd)
    wanted = norm_gradient(slope, hat, rstd, centred=True)
    assert close(layernorm_backward(g, x, w, *statistics), wanted, (n + 8) * UNIT * size, dtype)
    terms = wide(g) * hat
    bound = (m + 8) * UNIT * abs(terms).sum(0) + m * UNIT * (abs(wide(g)) * rstd).sum(0)
    assert close(layernorm_weight_backward(g, x, w, *statistics), terms.sum(0), bound)
    b, total = drawn(n, dtype="f16"), wide(g).sum(0)
    assert close(layernorm_bias_backward(g, b), total, m * UNIT * abs(wide(g)).sum(0), "f16")


def test_what_may_be_left_out() -> None:
    x, w = drawn(2, 3, 40, dtype="bf16"), drawn(40, seed=1, dtype="f16")
    plain = layernorm(x, out_dtype="f32")
    assert plain.shape == x.shape and abs(plain.mean(-1)).max() < 1e-6
    assert np.allclose(layernorm(x, w, out_dtype="f32"), plain * w, rtol=1e-6)
    assert np.allclose(layernorm(x, bias=w, out_dtype="f32"), plain + w, atol=1e-6)
    out = np.zeros(x.shape, np.float16)
    assert layernorm(x, w, w, out=out) is out and np.allclose(
        out, plain * w + w, rtol=2e-3, atol=1e-3
    )


def test_refusals() -> None:
    x = drawn(4, 32)
    with pytest.raises(LaunchError, match=r"bias has shape \(31,\), expected \(32,\)"):
        layernorm(x, x[0], x[0, 1:])
    with pytest.raises(LaunchError, match=r"mean has shape \(3,\), expected \(4,\)"):
        layernorm_backward(x, x, None, x[:3, 0], x[:, 0])
