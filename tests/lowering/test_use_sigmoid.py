"""Which divisions become products with a sigmoid, and what they give."""

from __future__ import annotations

import numpy as np
import pytest

import wsdsl
from wsdsl.compiler import Kernel
from wsdsl.ir.tile_ops import Map
from wsdsl.lowering.passes.use_sigmoid import use_sigmoid

TEXT = """
@kernel
def f(X: f32[M, N], w: f32[N], Y: f32[M, N]):
    for m, n in tiles(M, N):
        x = X[m, n]
        BODY
"""


def kernel(*lines: str) -> Kernel:
    return wsdsl.parse(TEXT.replace("BODY", "\n        ".join(lines))).f


def functions(one: Kernel) -> list[str]:
    return [op.fn for op in use_sigmoid(one.tile).ops if isinstance(op, Map)]


@pytest.mark.parametrize(
    "what",
    [
        "x / (1.0 + exp(-x))",
        "x / (exp(-x) + 1.0)",
        "1.0 / (1.0 + exp(x))",
        "X[m, n] / (1.0 + exp(w[n]))",
        "x * (2.0 / (1.0 + exp(w[n] - x)))",
    ],
)
def test_one_plus_an_exponential(what: str) -> None:
    one = kernel(f"Y[m, n] = {what}")
    assert not {"div", "exp"} & {*functions(one)} and "sigmoid" in functions(one)
    rng = np.random.default_rng(3)
    x = (rng.normal(size=(70, 24)) * 20).astype(np.float32)
    x[0, :4] = 0.0, np.inf, 88.5, -90.0
    w = rng.normal(size=24).astype(np.float32)
    names = dict(x=x, w=w[None], exp=np.exp, m=0, n=0)
    with np.errstate(all="ignore"):
        want = eval(what.replace("X[m, n]", "x").replace("w[n]", "w"), names)
    np.testing.assert_allclose(one.simulate(x, w, None), want, rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize(
    "lines",
    [
        ("Y[m, n] = x / (2.0 + exp(-x))",),
        ("Y[m, n] = x / (1.0 + exp2(-x))",),
        ("Y[m, n] = (1.0 + exp(-x)) / x",),
        # Somebody else needs it.
        ("e = exp(-x)", "Y[m, n] = e / (1.0 + e)"),
        ("d = 1.0 + exp(-x)", "Y[m, n] = x / d + d"),
    ],
)
def test_others_stay(lines: tuple[str, ...]) -> None:
    one = kernel(*lines)
    assert use_sigmoid(one.tile) is one.tile
