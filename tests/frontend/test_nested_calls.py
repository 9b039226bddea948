"""Functions that call functions: what is called twice with the same is computed once."""

import numpy as np
import pytest

from wsdsl import parse
from wsdsl.diagnostics import TypeCheckError
from wsdsl.ir.rewriter import walk

KERNEL = """
@kernel
def f(X: f32[M, N], Y: f32[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = g{last}(X[m, n])
"""


def calling(depth: int, first: str, call: str) -> str:
    made = [f"@function\ndef g0(x):\n    return {first}\n"]
    made += [
        f"@function\ndef g{n}(x):\n    return {call.format(g=f'g{n - 1}')}\n"
        for n in range(1, depth)
    ]
    return "\n".join(made) + KERNEL.format(last=depth - 1)


def test_the_same_call_is_shared() -> None:
    kernel = parse(calling(30, "x * 0.5", "{g}(x) + {g}(x)")).f
    assert sum(1 for _ in walk(kernel.tile_ir.body)) < 100
    small = parse(calling(5, "x * 0.5", "{g}(x) + {g}(x)")).f
    x, y = np.ones((8, 8), np.float32), np.zeros((8, 8), np.float32)
    small.reference(x, y)
    assert (y == 8).all()


def test_calls_in_two_branches_are_not_shared() -> None:
    body = "y = x\n    if n > 0:\n        y = h(x)\n    else:\n        y = h(x) + 1.0\n    return y"
    text = f"@function\ndef h(x):\n    return x * 2.0\n\n@function\ndef g0(x, n):\n    {body}\n"
    text += KERNEL.format(last=0).replace("X[m, n])", "X[m, n], k)").replace("]):", "], k: i32):")
    for k, wanted in ((1, 2.0), (0, 3.0)):
        x, y = np.ones((8, 8), np.float32), np.zeros((8, 8), np.float32)
        parse(text).f.reference(x, y, k)
        assert (y == wanted).all()


def test_too_many_calls_are_refused() -> None:
    with pytest.raises(TypeCheckError, match="call 4097 of a function") as error:
        parse(calling(24, "x * 0.5", "{g}({g}(x))"))
    assert len(error.value.findings) == 1
