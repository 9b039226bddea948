"""Run divisions by 1 + exp(y), which use_sigmoid rewrites, at large and infinite values."""

import numpy as np
import pytest

import wsdsl

TEXT = """
@kernel
def f(X: f32[M, N], w: f32[N], Y: f32[M, N]):
    for m, n in tiles(M, N):
        x = X[m, n]
        Y[m, n] = {}
"""


@pytest.mark.parametrize(
    "value",
    [
        "x / (1.0 + exp(-x))",
        "x / (exp(-x) + 1.0)",
        "1.0 / (1.0 + exp(x))",
        "X[m, n] / (1.0 + exp(w[n]))",
        "x * (2.0 / (1.0 + exp(w[n] - x)))",
    ],
)
def test_sigmoid_matches_division(value: str) -> None:
    rng = np.random.default_rng(3)
    x = (rng.normal(size=(70, 24)) * 20).astype(np.float32)
    x[0, :4] = 0.0, np.inf, 88.5, -90.0
    w = rng.normal(size=24).astype(np.float32)
    names = dict(x=x, w=w[None], exp=np.exp, m=0, n=0)
    with np.errstate(all="ignore"):
        want = eval(value.replace("X[m, n]", "x").replace("w[n]", "w"), names)
    got = wsdsl.parse(TEXT.format(value)).f.simulate(x, w, None)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-30)
