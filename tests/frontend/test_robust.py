"""Whatever the text, the answer is a kernel that the spec accepts, or an error that helps."""

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wsdsl
from tests.frontend.test_language import TEXTS as LANGUAGE
from tests.frontend.test_mistakes import MISTAKES
from tests.kernels import CASES
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.verify.verifier import verify

EVERYTHING = """
@function
def g(x, m):
    y = where(index(m) > 2, x, -x)
    return y, exp(y)

@kernel
def f(A: f32[M, N], R: i32[M], C: f32[M, N], P: u8[16], flag: i32, al: f32):
    for m in tiles(M):
        s, t = zeros(f32[m]), full(f32[m], -inf)
        for n in tiles(N):
            a, b = g(A[m, n], m)
            if flag > 2:
                s = s + sum(a, over=n)
            elif flag == 1:
                t = max(t, max(b, over=n))
            else:
                s -= sum(b, over=n)
            C[m, n] = a
        for b in each(N):
            s += A[R[m], b] * al
            if flag == 1:
                s = max(s, t)
        for n in tiles(0, flag, of=N):
            C[m, n] += s - cast(bitcast(P[3], i8), f32) + fma(s, t, al)
"""
VALID = [EVERYTHING, *LANGUAGE.values(), *(case.text for case in CASES.values())]
WRONG = [text for text in MISTAKES.values() if len(text) < 2000]
TOKEN = re.compile(r"\n *|\w+|//|<<|>>|[<>=!+*-]=|\*\*|[^\w\s]| +")
# One a line, or separated by blanks: what no kernel has.
STRANGE = """
while else return None True lambda is not print range -1 1e9 1e99 0 0x .5 8. bool u4 f8e4m3 tf32
{ } " ' ; \\ ! ~ % ** // . @ += -= == é \0 0o7 1_0 """
WORDS = [*sorted({t for text in VALID for t in TOKEN.findall(text)}), *STRANGE.split(), "\t", "\n"]
READ = settings(
    max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def read(text: str) -> None:
    try:
        kernels = vars(wsdsl.parse(text))
        tiles = [made.tile_ir for made in kernels.values()]
    except (wsdsl.ParseError, wsdsl.TypeCheckError) as error:
        assert all(f.hint for f in error.findings), error
        assert all(f.loc or "has no kernel" in f.message for f in error.findings), error
        return
    for tile in tiles:
        verify(tile)
        assert parse_kernel(str(tile)) == tile


@READ
@given(st.sampled_from(VALID + WRONG), st.data())
def test_mutated_kernels(text: str, data: st.DataObject) -> None:
    tokens = TOKEN.findall(text) or [" "]
    for _ in range(data.draw(st.integers(1, 3))):
        at, other = (data.draw(st.integers(0, len(tokens) - 1)) for _ in range(2))
        match data.draw(st.sampled_from(["lose", "double", "swap", "replace"])):
            case "lose":
                tokens[at] = ""
            case "double":
                tokens[at] *= 2
            case "swap":
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case _:
                tokens[at] = data.draw(st.sampled_from(WORDS))
    read("".join(tokens))


@READ
@given(st.sampled_from(VALID), st.data())
def test_lines_lost_and_swapped(text: str, data: st.DataObject) -> None:
    lines = text.split("\n")
    for _ in range(data.draw(st.integers(1, 2))):
        at, other = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        lines[at], lines[other] = lines[other], data.draw(st.sampled_from([lines[at], ""]))
    read("\n".join(lines))


@READ
@given(st.lists(st.sampled_from(WORDS), max_size=30), st.booleans())
def test_token_soup(tokens: list[str], inside: bool) -> None:
    head = "@kernel\ndef f(A: f32[M], C: f32[M]):\n    for m in tiles(M):\n        C[m] = "
    read((head if inside else "") + " ".join(tokens))


@pytest.mark.parametrize("opened", ["(", "-", "exp(", "A[", "~"])
@pytest.mark.parametrize("depth", [50, 400, 2000])
def test_deep_nesting(opened: str, depth: int) -> None:
    head = "@kernel\ndef f(A: f32[M], C: f32[M]):\n    for m in tiles(M):\n        C[m] = "
    closed = {"(": ")", "[": "]"}.get(opened[-1], "")
    read(head + opened * depth + "1.0" + closed * depth)


def test_deep_blocks() -> None:
    lines = [f"{' ' * i}if flag > {i}:" for i in range(4, 400)]
    head = "@kernel\ndef f(C: f32[M], flag: i32):\n"
    read(head + "\n".join([*lines, f"{' ' * 400}C[0] = 1.0"]))
    elifs = "".join(f"    elif flag == {i}:\n        C[{i}] = 1.0\n" for i in range(400))
    read(head + "    if flag > 500:\n        C[0] = 1.0\n" + elifs)


@pytest.mark.parametrize("depth", [95, 200, 400])
def test_blocks_that_are_nested_deeply_are_refused_where_they_are(depth: int) -> None:
    lines = ["@kernel", "def f(X: f32[M], Y: f32[M], a: i32):", "  for m in tiles(M):"]
    lines += ["    x = X[m]", *(" " * (4 + i) + f"if a > {i}:" for i in range(depth))]
    lines += [" " * (4 + depth) + "x = x + 1.0", "    Y[m] = x"]
    with pytest.raises((wsdsl.ParseError, wsdsl.TypeCheckError), match="nested too deeply"):
        wsdsl.parse("\n".join(lines)).f.compile()
