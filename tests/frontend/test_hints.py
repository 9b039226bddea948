"""What a hint says is text that works."""

from __future__ import annotations

import math
import re

import pytest

import wsdsl
from wsdsl.frontend.foreign import FOREIGN
from wsdsl.frontend.scope import WORDS
from wsdsl.ir.types import DTYPES

HEAD = """\
@kernel
def k(X: f32[N], W: f32[K, N], Y: f32[N], Z: f32[M, N], A: bf16[M, K], B: bf16[N, K]):
"""
LOOP = re.compile(r"for .*:")


def program(text: str) -> str:
    """A kernel in which a hint's text stands where it would: it is a loop, a type or a value."""
    if LOOP.fullmatch(text):
        return f"{HEAD}    {text}\n        pass\n    for n in tiles(N):\n        Y[n] = 0.0\n"
    if text in DTYPES:
        text = f"cast(x, {text})"
    if text.startswith("sum(") or text in WORDS:
        text = text if "(" in text else f"{text}(x)"
    return f"""{HEAD}\
    for m, n in tiles(M, N):
        x, y = X[n], X[n] + 1.0
        for k in tiles(K):
            z = {text}
        Z[m, n] = x
"""


def quoted(hint: str) -> list[str]:
    # A sign or a word alone is no text to try.
    return [t for t in re.findall(r"`([^`]+)`", hint) if re.search(r"\w[\w ]*\W|\W\w", t)]


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_said_for_a_foreign_word_works(name: str) -> None:
    assert name not in (*WORDS, *DTYPES)
    for text in quoted(FOREIGN[name]):
        if text != "each(N)":
            wsdsl.parse(program(text))


def test_a_foreign_word_is_answered_wherever_it_comes_from() -> None:
    isnan, exp = math.isnan, math.exp
    f32, tiles, N = wsdsl.f32, wsdsl.tiles, wsdsl.dims("N")

    @wsdsl.kernel
    def k(X: f32[N], Y: f32[N]):
        for n in tiles(N):
            Y[n] = isnan(X[n]) + exp(X[n])

    with pytest.raises(wsdsl.TypeCheckError) as caught:
        _ = k.tile
    hints = [f.hint for f in caught.value.findings]
    assert hints == ["write `x != x`", "import it from wsdsl: from wsdsl import exp"]


@pytest.mark.parametrize(
    "statement",
    [
        "Y[n] = X[index(n) - 1000]",
        "Y[n] = W[K - 1, n]",
        "Y[n] = W[index(n) % 4, n]",
        "Y[n] = W[cast(X[n], i32), n]",
        "if 2 > 3:\n            Z[0, -1] = 0.0\n        Y[n] = 0.0",
        "i = 0\n        for k in each(K):\n            i = i - 1\n        Y[n] = W[i, n]",
    ],
)
def test_an_index_that_may_be_inside_is_taken(statement: str) -> None:
    wsdsl.parse(f"{HEAD}    for n in tiles(N):\n        {statement}\n")
