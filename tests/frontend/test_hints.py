"""What a hint says is text that works."""

import math
import re

import pytest

import wsdsl
from tests.frontend.mistakes import body
from tests.frontend.syntax_mistakes import SYNTAX_MISTAKES
from tests.frontend.type_mistakes import TYPE_MISTAKES
from wsdsl.frontend.entities import WORDS
from wsdsl.frontend.foreign import FOREIGN
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
        _ = k.tile_ir
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


MISTAKES = SYNTAX_MISTAKES | TYPE_MISTAKES
ACC = "acc = zeros({})\nfor k in tiles(K):\n    acc += {}\nC[m, n] = acc"
MENDED = {
    "and": ("with `&`", "C[m, n] = where((alpha > 0) & (n0 > 0), 1.0, 0.0)"),
    "mix2": ("as in cast(x, f32)", "C[m, n] = cast(A[m, :], f32) @ cast(B[n, :], f32)"),
    "index_lacks_an_axis": ("sum(x, over=K)", "C[m, n] = sum(A[m, :], over=K)"),
    "carried_number_becomes_a_tile": (
        "start with acc = zeros(f32[m, n])", ACC.format("f32[m, n]", "A[m, k] @ B[n, k]")),
    "carried_dtype_changes": (
        "start with acc = zeros(f32[m, n])", ACC.format("f32[m, n]", "A[m, k] @ B[n, k]")),
    "name_of_one_branch": (
        "set it before the if", "y = 0.0\nif alpha > 0:\n    y = 1.0\nC[m, n] = y"),
    "count2": ("where(index(k) < 4, x, 0)", ACC.format(
        "f32[m]", "sum(where(index(k) < 4, cast(A[m, k], f32), 0), over=k)")),
    "fit": ("cast to i32", "C[m, n] = cast(cast(P[3], i32) + 300, f32)"),
    "fit2": ("cast to f32", "C[m, n] = cast(r[m], f32) + 1.5"),
    "fulltile": ("x + zeros(f32[…])", "C[m, n] = cast(r[m], f32) + zeros(f32[m, n])"),
    "bitcast_width": ("use cast", "C[m, n] = cast(r[m], bf16)"),
    "args": ("where(condition, a, b)", "C[m, n] = where(r[m] > 0, 1.0, 0.0)"),
    "index_outside": ("N - 1 is the last index", "C[m, N - 1] = 0.0"),
}  # fmt: skip


@pytest.mark.parametrize("name", MENDED)
def test_what_a_mistakes_hint_says_works(name: str) -> None:
    words, mended = MENDED[name]
    with pytest.raises(wsdsl.WsdslError) as caught:
        wsdsl.parse(MISTAKES[name])
    assert any(words in f.hint for f in caught.value.findings), str(caught.value)
    wsdsl.parse(body(mended))


@pytest.mark.parametrize("name", ["did_you_mean", "unknown_type", "several_in_source_order"])
def test_what_was_meant_takes_the_place_of_what_was_written(name: str) -> None:
    """Put in at the caret, a word that is suggested is known."""
    with pytest.raises(wsdsl.WsdslError) as caught:
        wsdsl.parse(MISTAKES[name])
    suggested = [(f, re.search(r"did you mean `(.+)`", f.hint)) for f in caught.value.findings]
    ((finding, found),) = [(f, m) for f, m in suggested if m]
    loc, lines = finding.loc, MISTAKES[name].split("\n")
    assert loc
    line = lines[loc.line - 1]
    lines[loc.line - 1] = line[: loc.column - 1] + found[1] + line[loc.end - 1 :]
    try:
        wsdsl.parse("\n".join(lines))
    except wsdsl.WsdslError as error:
        assert not {f"`{found[1]}` is not defined", finding.message} & {
            f.message for f in error.findings
        }


@pytest.mark.parametrize(
    ("text", "hint", "mended"),
    [
        ("X[n] = X[n] + X[index(n) - 1]", "another tensor", "Y[n] = X[n] + X[index(n) - 1]"),
        ("Y[0] = max(Y[0], max(X[n], over=n))", "carry a variable", ""),
        ("Y[cast(X[n], i32)] = max(Y[cast(X[n], i32)], X[n])", "only `+=` combines", ""),
    ],
)
def test_what_is_not_supported_is_named(text: str, hint: str, mended: str) -> None:
    program = f"{HEAD}    for n in tiles(N):\n        {{}}\n"
    with pytest.raises(wsdsl.WsdslError) as caught:
        wsdsl.parse(program.format(text))
    assert any(hint in f.hint for f in caught.value.findings)
    wsdsl.parse(program.format(mended or "Y[n] = 0.0"))


@pytest.mark.parametrize("op", ["*", "-", "/", "%", "**"])
def test_what_is_said_for_other_assignments_to_tensors_works(op: str) -> None:
    program = f"{HEAD}    for n in tiles(N):\n        {{}}\n"
    for value in ("X[n]", "X[n] + 1.0", "2.0"):
        with pytest.raises(wsdsl.TypeCheckError, match=re.escape(f"`{op}=` cannot upd")) as caught:
            wsdsl.parse(program.format(f"Y[n] {op}= {value}"))
        wsdsl.parse(program.format(quoted(caught.value.findings[0].hint)[-1]))


def test_axes_are_named_as_they_are_written() -> None:
    loop = "        for k in tiles(K):\n            "
    text = f"{HEAD}    for m, n in tiles(M, N):\n        acc = zeros(f32[m, n])\n"
    text += f"{loop}acc += A[m, k] @ B[n, k]\n{loop}{{}}\n        Z[m, n] = acc\n"
    for more, hint in (
        ("A[m, k]", "sum(x, over=k)"),
        ("(A[m, k] @ B[n, k]) * W[k, 0]", "operands"),
    ):
        with pytest.raises(wsdsl.TypeCheckError) as caught:
            wsdsl.parse(text.format(f"acc += {more}"))
        assert hint in str(caught.value) and "k_1" not in str(caught.value)
    wsdsl.parse(text.format("acc += sum(A[m, k], over=k)"))


@pytest.mark.parametrize(
    ("dtype", "hint"),
    [("c64", "two tensors"), ("u64", "`u32`"), ("bf61", "`bf16`"), ("q", "f32, ")],
)
def test_an_unknown_element_type_is_named(dtype: str, hint: str) -> None:
    with pytest.raises(wsdsl.TypeCheckError, match=f"`{dtype}` is not an element type") as caught:
        wsdsl.parse(HEAD.replace("f32[N]", f"{dtype}[N]", 1) + "    Y[0] = 0.0\n")
    assert hint in caught.value.findings[0].hint


def test_a_kernel_may_be_named_like_a_dimension() -> None:
    text = "@kernel\ndef M(X: f32[M, N], Y: f32[M]):\n    for m in tiles(M):\n        Y[m] = 0.0\n"
    assert set(vars(wsdsl.parse(text + text.replace("def M", "def N")))) == {"M", "N"}


@pytest.mark.parametrize("place", ["@", "    for", "        Y"])
def test_a_form_feed_is_no_indentation(place: str) -> None:
    text = f"{HEAD}    for n in tiles(N):\n        Y[n] = foo\n"
    for feed in ("\f", "\f\f", "  \f"):
        with pytest.raises(wsdsl.TypeCheckError, match=r":4:16: WS\d+ `foo` is not defined"):
            wsdsl.parse(re.sub(f"(?m)^{place}", feed + place, text))
