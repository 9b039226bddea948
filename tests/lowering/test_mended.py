"""Programs that lowering refuses, and the same as the hint has it: that is lowered."""

from __future__ import annotations

import pytest

import wsdsl
from wsdsl.diagnostics import CompileError
from wsdsl.lowering.pipeline import lower

ROWS = "for m, n in tiles(M, N):\n    acc = zeros(f32[m, n])\n    for k in tiles(K):\n"
STORED = "\n    Y[m, n] = acc"
ONE_ROW = "for n in tiles(N):\n    acc = zeros(f32[n])\n    for k in tiles(K):\n        acc += {}\n"
PAIRS = {
    "one row": (
        "x: bf16[K], W: bf16[N, K], Y: f32[N]",
        ONE_ROW.format("x[k] @ W[n, k]") + "    Y[n] = acc",
        "sum(cast(a, f32) * cast(b, f32), over=k)",
        ONE_ROW.format("sum(cast(x[k], f32) * cast(W[n, k], f32), over=k)") + "    Y[n] = acc",
    ),
    "two contracted axes": (
        "X: bf16[M, K, L], W: bf16[N, K, L], Y: f32[M, N]",
        ROWS + "        for l in tiles(L):\n            acc += X[m, k, l] @ W[n, k, l]" + STORED,
        "contract one axis, and loop over the other with `each`",
        ROWS.replace("in tiles(K)", "in each(K)")
        + "        for l in tiles(L):\n            acc += X[m, k, l] @ W[n, k, l]" + STORED,
    ),
    "f32": (
        "X: f32[M, K], W: f32[N, K], Y: f32[M, N]",
        ROWS + "        acc += X[m, k] @ W[n, k]" + STORED,
        "declare them as tf32",
        ("X: tf32[M, K], W: tf32[N, K], Y: f32[M, N]",
         ROWS + "        acc += X[m, k] @ W[n, k]" + STORED),
    ),
    "three axes": (
        "X: f32[M, N, K], Y: f32[M, N, K]",
        "for m, n, k in tiles(M, N, K):\n    Y[m, n, k] = X[m, n, k]",
        "walk one of them with `each`: for m in each(…)",
        "for m in each(M):\n    for n, k in tiles(N, K):\n        Y[m, n, k] = X[m, n, k]",
    ),
    "one number": (
        "X: f32[N], Y: f32[1]",
        "s = 0.0\nfor n in tiles(N):\n    s += sum(X[n], over=n)\nY[0] = s",
        "add to a tensor",
        "for n in tiles(N):\n    Y[0] += sum(X[n], over=n)",
    ),
    "stored by all": (
        "X: f32[M, N], Y: f32[4]",
        "for m, n in tiles(M, N):\n    Y[0] = X[0, 0]",
        "store it at `m` and `n`, add to it (`+=`)",
        "for m in tiles(M):\n    Y[0] += sum(X[m, 0], over=m)",
    ),
    "four bits": (
        "X: i32[M, N], Y: u4[M, N]",
        "for m, n in tiles(M, N):\n    Y[m, index(n) + 1] = X[m, n]",
        "store it to a tensor of u8",
        ("X: i32[M, N], Y: u8[M, N]",
         "for m, n in tiles(M, N):\n    Y[m, index(n) + 1] = X[m, n]"),
    ),
}  # fmt: skip


def lowered(parameters: str, body: str) -> None:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    lower(wsdsl.parse(f"@kernel\ndef k({parameters}):\n{lines}").k.tile)


@pytest.mark.parametrize("name", PAIRS)
def test_what_the_hint_says_is_lowered(name: str) -> None:
    parameters, refused, hint, mended = PAIRS[name]
    with pytest.raises(CompileError) as caught:
        lowered(parameters, refused)
    (finding,) = caught.value.findings[:1]
    assert hint in finding.hint and "^" in finding.render()
    lowered(*(mended if isinstance(mended, tuple) else (parameters, mended)))
