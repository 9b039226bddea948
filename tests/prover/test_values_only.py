"""Mutants of what docs/prover.md says is not compared, which are accepted: they change values, and
no event, its address, its order, or who takes part in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

import pytest

from tests.prover.hostile import OTHER, harm, refusal
from tests.prover.hostile_kernels import KERNELS, scheduled
from tests.prover.ptx_mutants import ACCESS
from tests.prover.skeletons import objection
from tests.prover.test_skeleton import events, is_label
from wsdsl import Schedule
from wsdsl.dispatch.compiled import Compiled
from wsdsl.ir.ops import WgmmaMmaAsync
from wsdsl.ir.rewriter import rewrite

SMALL = Schedule(tile=dict(m=64, n=32), stages=2, consumers=1)
Mutants = Iterator[list[str]]


def changed(lines: list[str], i: int, line: str) -> list[str]:
    return [*lines[:i], line, *lines[i + 1 :]]


def exchanged_values(lines: list[str]) -> Mutants:
    """Two stores between the same events each write what the other did."""
    held = r"\{[^}]*\}"
    for i, line in enumerate(lines):
        for j in range(i + 1, min(i + 8, len(lines))):
            if is_label(lines[j]) or " bra" in lines[j] or j in events(lines):
                break
            one, two = (re.search(held, x) for x in (line, lines[j]))
            if "stmatrix" in line and "stmatrix" in lines[j] and one and two and one[0] != two[0]:
                swapped = changed(lines, i, line.replace(one[0], two[0]))
                yield changed(swapped, j, lines[j].replace(two[0], one[0]))


def loads_left_out(lines: list[str]) -> Mutants:
    """Of what is added to sums, not of what a branch asks."""
    for i, line in enumerate(lines):
        if re.search(r"ld\.global\.nc\.v2", line):
            yield changed(lines, i, "")


def loads_beyond_an_event(lines: list[str]) -> Mutants:
    """Memory that no thread writes is read later."""
    found = events(lines)
    for i, line in enumerate(lines):
        after = next((j for j in found if j > i), i)
        apart = any(is_label(x) or " bra" in x or "{" in x for x in lines[i : after + 1])
        if "ld.global.nc" in line and after > i and not apart:
            yield [*lines[:i], *lines[i + 1 : after + 1], line, *lines[after + 1 :]]


def sums_kept(lines: list[str]) -> Mutants:
    """Whether sums begin at zero, or are taken for zero."""
    for i, line in enumerate(lines):
        if re.search(r"bra KEEP_\d+;", line):
            yield changed(lines, i, re.sub(r"^@!?(%p\d+)", r"@\1", line).replace("@", "@!"))
        if found := re.match(r"wgmma.*, (%p\d+), 1, 1,", line):
            other = next(x for x in ("%p1", "%p2") if x != found[1])
            yield changed(lines, i, line.replace(f" {found[1]},", f" {other},"))


@pytest.mark.parametrize(
    ("mutants", "name"),
    [
        (exchanged_values, "gemm"),
        (loads_left_out, "if_summed"),
        (loads_beyond_an_event, "in_place_product"),
        (sums_kept, "if_summed"),
    ],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_mutants_that_are_accepted_have_the_same_events(
    mutants: Callable[[list[str]], Mutants], name: str
) -> None:
    case = KERNELS[name]
    made: Compiled = case.kernel._compile(SMALL, dict(case.sizes), ())
    lines = made.ptx.splitlines()
    found = [*mutants(lines)][:4]
    assert found
    for mutant in found:
        assert told(mutant) == told(lines) and not objection(made.scheduled, "\n".join(mutant))


def told(lines: list[str]) -> tuple[list[str], list[str]]:
    """All events in their order, and the places of accesses to SMEM between them."""
    predicate = re.compile(r"(?<=, )%p\d+(?=, 1, 1,)")
    stores = [re.findall(r"\[.*?\]", x)[0] for x in lines if ACCESS.match(x) and "shared" in x]
    return [predicate.sub("%p", lines[i]) for i in events(lines)], stores


def test_a_shorter_product_is_proved_and_races_nowhere() -> None:
    victim = scheduled("gemm", SMALL, (), Random(1))
    body = rewrite(
        victim.kernel.body,
        lambda op: (replace(op, k=op.k // 2) if isinstance(op, WgmmaMmaAsync) else op,),
    )
    mutant = replace(victim.kernel, body=body)
    assert refusal(mutant) == "" and harm(victim, mutant) == (OTHER, "")
