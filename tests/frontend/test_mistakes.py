"""What a person is told who makes a mistake: where, what, and what to do."""

import pytest

import wsdsl
from tests.frontend.mistakes import body
from tests.frontend.syntax_mistakes import SYNTAX_MISTAKES
from tests.frontend.type_mistakes import TYPE_MISTAKES
from tests.frontend.word_mistakes import WORD_MISTAKES

MISTAKES = SYNTAX_MISTAKES | TYPE_MISTAKES | WORD_MISTAKES


def refused(text: str) -> wsdsl.WsdslError:
    with pytest.raises((wsdsl.ParseError, wsdsl.TypeCheckError)) as caught:
        wsdsl.parse(text, "f")
    return caught.value


def shortened(text: str) -> str:
    return "\n".join(line if len(line) < 160 else f"{line[:60]} …" for line in text.split("\n"))


def test_messages(golden) -> None:
    """The message of each, which quotes the line, so that a change can be judged by reading."""
    told = [f"== {name}\n{shortened(str(refused(text)))}" for name, text in MISTAKES.items()]
    golden("\n".join(told))


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_is_placed_and_has_a_hint(name: str) -> None:
    error = refused(MISTAKES[name])
    places = [(f.loc.line, f.loc.column) for f in error.findings if f.loc]
    assert places == sorted(places)
    assert all(f.hint for f in error.findings)
    assert all(f.loc for f in error.findings) or not MISTAKES[name].strip("\n# hi")
    for f in error.findings:
        assert f.loc is None or f.loc.text == MISTAKES[name].split("\n")[f.loc.line - 1].rstrip()


def test_all_mistakes_of_all_kernels_at_once() -> None:
    text = body("C[m, n] = foo") + body("C[m, n] = bar\nC[m, n] = 1.0 + baz").replace("k(", "l(")
    findings = refused(text).findings
    assert [(f.loc and f.loc.line, f.message) for f in findings] == [
        (5, "`foo` is not defined"),
        (10, "`bar` is not defined"),
        (11, "`baz` is not defined"),
    ]


@pytest.mark.parametrize(
    "text", ["x = foo\ny = x + 1.0\nC[m, n] = y * x", "A = 1.0", "C[m, n] = foo @ foo"]
)
def test_nothing_follows_from_a_mistake(text: str) -> None:
    assert len(refused(body(text)).findings) == 1


def test_a_loop_with_a_wrong_header_is_looked_into() -> None:
    error = refused(body("for k in tiles(Q):\n    y = A[m, k] @ foo\nC[m, n] = y"))
    assert "found `Q`" in error.findings[0].message and "`foo`" in error.findings[1].message
