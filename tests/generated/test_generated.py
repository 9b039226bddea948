"""Programs that nobody wrote: each is refused at a place in its text, or right and proved."""

import re
from collections.abc import Callable

import pytest

from tests.generated.__main__ import report
from tests.generated.programs import program
from tests.generated.shrink import shrunk
from tests.generated.trial import attempts

CHUNK = 20


@pytest.mark.parametrize("chunk", range(4))
def test_programs(chunk: int, each: Callable[[int], int]) -> None:
    """PTX is made of one in twenty: it takes longer than the rest together."""
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK, each(2)):
        text = program(seed)
        last = attempts(text, seed, schedules=2, ptx=seed % CHUNK == 0)[-1]
        if last.failed:
            pytest.fail(report(seed, text, last))


def test_most_are_compiled() -> None:
    """A generator whose programs are all refused shows nothing."""
    kinds = [attempts(program(seed), seed, schedules=1)[-1].kind for seed in range(1000, 1020)]
    assert kinds.count("ok") >= 10, kinds


FORMS = {
    "sums reduced over an output axis": r"= (sum|max)\(\(?(exp\(min\()?acc\d+.{0,9}, over=[mn]\)",
    "a number for each tile of a loop": r"[*+] scale\d+\[index\(\w\) // (64|128)\]\n",
    "loops from an odd index on": r"in tiles\((1|3|n\d+), [A-Z], of=[A-Z]\)",
    "4-bit elements added in a loop": r" \+ cast\(X\d+\[[^\n]*\], f32\), over=",
    "operands of 8 bits cast to 16": r"cast\(X\d+\[.*\], (bf16|f16)\) @",
    "literals of more digits than a type": r"1\.3333334|0\.044715|2\.718281828|1e-9",
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_has_its_share_of_programs(form: str) -> None:
    texts = [program(seed) for seed in range(300)]
    assert sum(re.search(FORMS[form], text) is not None for text in texts) >= 6


def test_shrinking_keeps_the_failure_alone() -> None:
    text = next(text for text in map(program, range(100)) if "exp(" in text)
    small = shrunk(text, lambda smaller: "exp(" in smaller)
    assert "exp(" in small and len(small.splitlines()) <= 8, small
