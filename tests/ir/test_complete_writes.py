"""Which outputs a kernel writes whole: those alone need no zeros first."""

from __future__ import annotations

import numpy as np
import pytest

import wsdsl

HEAD = "@kernel\ndef k(X: f32[M, N], r: i32[M], Y: f32[M, N]{more}):\n"
MORE = ", n0: i32, P: f32[M, 2], Q: f32[B, M]"
TILES = "for m, n in tiles(M, N):\n    "
WHOLE = {
    "tiles": TILES + "Y[m, n] = X[m, n]",
    "a number": TILES + "Y[m, n] = 1.0",
    "one index after the other": "for m in each(M):\n    for n in each(N):\n        Y[m, n] = 0.0",
    "rows inside": "for m in tiles(M):\n    for n in tiles(N):\n        Y[m, n] = X[m, n]",
    "all of a row": "for m in tiles(M):\n    Y[m, :] = X[m, :]",
    "each of a fixed size": "for m in tiles(M):\n    P[m, 0] = 1.0\n    P[m, 1] = 2.0",
    "both branches": f"{TILES}if n0 > 0:\n        Y[m, n] = 1.0\n    else:\n        Y[m, n] = 2.0",
    "each and tiles": "for b in each(B):\n    for m in tiles(M):\n        Q[b, m] = 1.0",
}
PART = {
    "a scatter": TILES + "Y[r[m], n] = X[m, n]",
    "if": TILES + "if n0 > 0:\n        Y[m, n] = 1.0",
    "one column": "for m in tiles(M):\n    Y[m, 0] = 1.0",
    "one of a fixed size": "for m in tiles(M):\n    P[m, 1] = 1.0",
    "a scalar row": "for n in tiles(N):\n    Y[n0, n] = 1.0",
    "a part of a dimension": "for m in tiles(M):\n    for n in tiles(0, 3, of=N):\n"
    "        Y[m, n] = 1.0",
    "shifted": TILES + "Y[m, index(n) + 1] = X[m, n]",
    "another dimension": "for b in each(B):\n    for n in tiles(N):\n        Y[b, n] = 1.0",
    "the diagonal": "for m in each(M):\n    Y[m, m] = 1.0",
}


def written(text: str) -> dict[str, frozenset[str]]:
    body = "".join(f"    {line}\n" for line in text.split("\n"))
    return dict(wsdsl.parse(HEAD.format(more=MORE) + body).k.access.whole)


@pytest.mark.parametrize("name", WHOLE)
def test_whole(name: str) -> None:
    assert list(written(WHOLE[name]).values()) == [frozenset()]


@pytest.mark.parametrize("name", PART)
def test_in_part(name: str) -> None:
    assert not written(PART[name])


def test_a_loop_around_may_be_empty() -> None:
    text = "for m in tiles(M):\n    for b in each(B):\n        P[m, 0] = 1.0\n        P[m, 1] = 0.0"
    assert written(text) == {"P": {"B"}}


def test_what_is_left_out_is_zero() -> None:
    body = "    for m, n in tiles(M, N):\n        Y[r[m], n] = X[m, n]\n"
    kernel = wsdsl.parse(HEAD.format(more="") + body).k
    x, rows = np.ones((40, 24), np.float32), np.arange(1, 41, dtype=np.int32)
    for out in (kernel.reference(x, rows), kernel.simulate(x, rows)):
        assert not out[0].any() and out[1:].all()
