"""Whatever the text, the answer is a kernel that the spec accepts, or an error of wsdsl."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

import wsdsl
from tests.frontend.test_mistakes import MISTAKES
from tests.kernels import CASES
from wsdsl.ir.spec import verify

TEXTS = [case.text for case in CASES.values()] + list(MISTAKES.values())
TOKEN = re.compile(r"\s+|\w+|[^\w\s]")


def read(text: str) -> None:
    try:
        kernels = vars(wsdsl.parse(text))
    except wsdsl.WsdslError as error:
        assert str(error)
        return
    for kernel in kernels.values():
        verify(kernel.tile)


@settings(max_examples=250, deadline=None, derandomize=True)
@given(st.sampled_from(TEXTS), st.data())
def test_a_token_lost_doubled_or_exchanged(text: str, data: st.DataObject) -> None:
    tokens = TOKEN.findall(text)
    if not tokens:
        return
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, len(tokens) - 1))
        other = tokens[data.draw(st.integers(0, len(tokens) - 1))]
        tokens[at] = data.draw(st.sampled_from(["", tokens[at] * 2, other]))
    read("".join(tokens))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(sorted({t for x in TEXTS for t in TOKEN.findall(x)})), max_size=30))
def test_token_soup(tokens: list[str]) -> None:
    read("@kernel\ndef f(A: f32[M], C: f32[M]):\n    " + " ".join(tokens))
