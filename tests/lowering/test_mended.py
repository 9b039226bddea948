"""Programs that lowering refuses, and the same as the hint has it: that is lowered."""

import re
from typing import Any

import pytest

import wsdsl
from wsdsl import Schedule
from wsdsl.diagnostics import WsdslError
from wsdsl.lowering.pipeline import lower

ROWS = "for m, n in tiles(M, N):\n    acc = zeros(f32[m, n])\n    for k in tiles(K):\n"
STORED = "\n    Y[m, n] = acc"
ONE_ROW = "for n in tiles(N):\n    acc = zeros(f32[n])\n    for k in tiles(K):\n        acc += {}\n"
PAIRS: dict[str, tuple[Any, ...]] = {
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
        "loop over one with `each`: for m in each(…)",
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
        "store at `m` and `n`, add instead (`+=`)",
        "for m in tiles(M):\n    Y[0] += sum(X[m, 0], over=m)",
    ),
    "four bits": (
        "X: i32[M, N], Y: u4[M, N]",
        "for m, n in tiles(M, N):\n    Y[m, index(n) + 1] = X[m, n]",
        "store to a tensor of u8",
        ("X: i32[M, N], Y: u8[M, N]",
         "for m, n in tiles(M, N):\n    Y[m, index(n) + 1] = X[m, n]"),
    ),
}  # fmt: skip


BOTH = "cast(A[m, k], {0}) @ cast(B[n, k], {0})"
CASTS = [
    ("bf16", "f32", "A[m, k] @ cast(B[n, k], bf16)"),
    ("f32", "f16", "cast(A[m, k], f16) @ B[n, k]"),
    ("f16", "bf16", "cast(A[m, k], bf16) @ B[n, k]"),
    ("bf16", "tf32", "cast(A[m, k], tf32) @ B[n, k]"),
    ("f8e4m3", "bf16", "cast(A[m, k], bf16) @ B[n, k]"),
    ("bf16", "i8", "A[m, k] @ cast(B[n, k], bf16)"),
    ("i4", "i8", BOTH.format("i8")),
    ("i16", "i16", BOTH.format("i8")),
    ("f8e5m2", "f32", BOTH.format("bf16")),
]
FACTORS = [
    ("(A[m, k] * s[m, 0]) @ B[n, k]", "", "(A[m, k] @ B[n, k]) * s[m, 0]"),
    ("A[m, k] @ ((t[n, 0] + 1.0) * B[n, k])", "", "(A[m, k] @ B[n, k]) * (t[n, 0] + 1.0)"),
    (
        "(A[m, k] * s[m, k]) @ B[n, k]",
        "write `cast(A[m, k] * s[m, k], bf16)`",
        "cast(A[m, k] * s[m, k], bf16) @ B[n, k]",
    ),
]
GATHERED = [
    ("f8e4m3[M, K]", "A[r[m], k]", "where(r[m] >= 0, A[r[m], k], 0.0)"),
    ("i8[M, K]", "A[r[m] + 1, k]", "where(r[m] + 1 >= 0, A[r[m] + 1, k], 0)"),
    ("bf16[K, M]", "A[z[k], m]", "where(z[k] >= 0, A[z[k], m], 0.0)"),
]
BLOCKS = [("f8e4m3", 16), ("f8e5m2", 200), ("bf16", 1), ("f16", 8), ("f8e4m3", 48)]
MORE = ", s: f32[M, K], t: f32[N, K], r: i32[M], z: i32[K]"


def product(a: str, b: str, text: str, hint: str, better: str) -> tuple[str, ...]:
    kind = "i32" if {a[0], b[0]} == {"i"} else "f32"
    rows = ROWS.replace("f32", kind) + "        acc += "
    params = f"A: {a}, B: {b}, Y: {kind}[M, N]{MORE}"
    return params, rows + text + STORED, hint, rows + better + STORED


for a, b, better in CASTS:
    hint = better if better.count("cast") > 1 else re.findall(r"cast\(.*?\)", better)[0]
    sides = f"{a}[M, K]", f"{b}[N, K]"
    PAIRS[f"{a} and {b}"] = product(*sides, "A[m, k] @ B[n, k]", f"`{hint}`", better)
for text, hint, better in FACTORS:
    PAIRS[better] = product("bf16[M, K]", "bf16[N, K]", text, hint or f"`{better}`", better)
for a, text, better in GATHERED:
    b = f"{a.split('[')[0]}[N, K]"
    PAIRS[better] = product(a, b, f"{text} @ B[n, k]", f"`{better}`", f"{better} @ B[n, k]")
for a, size in BLOCKS:
    x, y = f"A[m, k] * s[m, index(k) // {size}]", f"(B[n, k] * t[n, index(k) // {size}])"
    to = "f16" if a == "f16" else "bf16"
    better = f"cast({x}, {to}) @ cast({y}, {to})"
    hint = f"write `{better}`"
    PAIRS[f"{a} by {size}"] = product(f"{a}[M, K]", f"{a}[N, K]", f"({x}) @ {y}", hint, better)


def lowered(parameters: str, body: str) -> None:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    lower(wsdsl.parse(f"@kernel\ndef k({parameters}):\n{lines}").k.tile_ir)


@pytest.mark.parametrize("name", PAIRS)
def test_what_the_hint_says_is_lowered(name: str) -> None:
    parameters, refused, hint, mended = PAIRS[name]
    with pytest.raises(WsdslError) as caught:
        lowered(parameters, refused)
    (finding,) = caught.value.findings[:1]
    assert hint in finding.hint and "^" in finding.render()
    lowered(*(mended if isinstance(mended, tuple) else (parameters, mended)))


ATTENTION = """\
@kernel
def k(Q: bf16[S, D], K: bf16[T, D], V: bf16[T, D], Y: bf16[S, D]):
    for q in tiles(S):
        top, total, acc = full(f32[q], -inf), zeros(f32[q]), zeros(f32[q, D])
        for t in tiles(T):
            s = Q[q, :] @ K[t, :]
            higher = max(top, max(s, over=t))
            p, shrink = exp(s - higher), exp(top - higher)
            total = total * shrink + sum(p, over=t)
            acc = acc * shrink + cast(p, bf16) @ V[t, :]
            top = higher
        Y[q, :] = acc / total
"""


@pytest.mark.parametrize("tile", [None, dict(q=64, t=16)])
def test_columns_that_no_tile_has_room_for_are_divided(tile: dict[str, int] | None) -> None:
    """One result of 256 columns has room, two have not."""
    sizes, text = dict(S=512, T=512, D=256), ATTENTION
    wsdsl.parse(text).k.schedule(**sizes)
    text = text.replace("V: bf16[T, D], Y", "V: bf16[T, D], W: bf16[T, D], Z: bf16[S, D], Y")
    text = text.replace("zeros(f32[q, D])\n", "zeros(f32[q, D])\n        b = zeros(f32[q, D])\n")
    more = "            b = b * shrink + cast(p, bf16) @ W[t, :]\n"
    text = text.replace("@ V[t, :]\n", f"@ V[t, :]\n{more}")
    text += "        Z[q, :] = b\n"
    with pytest.raises(WsdslError) as caught:
        wsdsl.parse(text).k.schedule(Schedule(tile=tile), **sizes)
    assert {f.hint for f in caught.value.findings} == {
        "split the columns of the result by `for …, n in tiles(…, D)` around the contraction, and "
        "write `n` instead of `:`"
    }
    text = text.replace("q in tiles(S)", "q, n in tiles(S, D)").replace("[q, D]", "[q, n]")
    for name in "V[t", "W[t", "Y[q", "Z[q":
        text = text.replace(f"{name}, :]", f"{name}, n]")
    wsdsl.parse(text).k.schedule(Schedule(tile=tile), **sizes)


def test_tiles_for_which_smem_has_room_are_found() -> None:
    """Of 64 keys: beside 256 columns of queries, 128 do not fit."""
    text = ATTENTION.replace("V: bf16[T, D], Y: bf16[S, D]", "V: bf16[T, E], Y: bf16[S, E]")
    text = text.replace("[q, D]", "[q, E]")
    kernel, sizes = wsdsl.parse(text).k, dict(S=1 << 16, T=512, D=256, E=128)
    assert (kernel.schedule(**sizes).tile or {})["t"] == 64
    assert re.search(
        r"but rejected \(1 candidate\):\n.* t=128.* bytes of SMEM", kernel.explain(**sizes)
    )


SCALED = product(
    "f8e4m3[M, K]",
    "f8e4m3[N, K]",
    "(A[m, k] * p[m, index(k) // 32]) @ (B[n, k] * q[n, index(k) // 32])",
    "",
    "",
)


def test_rows_of_scales_that_tma_does_not_take_are_named() -> None:
    params = SCALED[0] + ", p: f8e8m0[M, KB], q: f8e8m0[N, KB]"
    body = "".join(f"    {line}\n" for line in SCALED[1].split("\n"))
    kernel = wsdsl.parse(f"@kernel\ndef k({params}):\n{body}").k
    asked, sizes = Schedule(arch="sm_100a", sf_load="st"), dict(M=256, N=256, K=4128, KB=129)
    with pytest.raises(WsdslError) as caught:
        kernel.schedule(asked, **sizes)
    assert re.findall("`.`", " ".join(f.message for f in caught.value.findings)) == ["`p`", "`q`"]
    assert all("`[:, :n]` of a wider array" in f.hint for f in caught.value.findings)
    slow = kernel._compile(Schedule(arch="sm_100a"), sizes, ("p", "q"), ())
    for told in (slow.explain(), kernel.explain(Schedule(arch="sm_100a"), **sizes)):
        assert told.count("of a wider array): the tensor cores apply these scales") == 2
    fast = kernel._compile(asked, sizes, (), ())  # as of arrays with padded rows
    assert "wider" not in fast.explain() and "useful" in fast.explain()
