"""PTX whose tiles are as wide as each launch says, at one width; and whether its events follow each
other there as at another width, where they were compared with the kernel's.

The widths differ in numbers that letters tell, such as wgmma's N and the bytes that a barrier
expects. If the kernel's events at one width are those at another with other letters, and the PTX's
are those at the other width with the same other letters, both have one language here if they have
there. All else must be equal: branches, and registers that places and parities are made of.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from wsdsl.prover.ptx.expected_paths import Fill, Member, Skeleton
from wsdsl.prover.ptx.ptx_paths import Runs, Step
from wsdsl.prover.ptx.ptx_trace import Event, Jump
from wsdsl.prover.ptx.register_slice import read, split_address
from wsdsl.prover.ptx.sync_events import KINDS, Letter, Origin
from wsdsl.prover.ptx.trace_equivalence import Met

PARAMETER = re.compile(r"_param_(\d+)\b")
TEST = re.compile(r"\s*setp\.ge\.s32 (\w+), (%r\d+), (\d+);$")
GOES = re.compile(r"\bbra(?:\.uni)?\s+([$\w]+)")
BRANCH = re.compile(r"\s*(?:@(!?%?\w+) )?bra(?:\.uni)?\s+([$\w]+);$")
LABEL = re.compile(r"\s*([$\w]+):$")
TABLE = re.compile(r"\.branchtargets([^;]*);")


def at_width(ptx: str, columns: int) -> str | None:
    """The PTX of launches whose last argument is the number, with an empty line for each that they
    do not come to; None where no register has the argument."""
    last = max(map(int, PARAMETER.findall(ptx)), default=-1)
    load = re.compile(rf"ld\.param\.b32(\s+)(%r\d+), \[\w+_param_{last}\];")
    if not (found := load.search(ptx)):
        return None
    made = load.sub(rf"mov.b32\g<1>\g<2>, {columns};", ptx)
    if _num_definitions(ptx, found[2]) > 1:
        return made  # A test evaluates it there.
    return "\n".join(_followed(made.split("\n"), found[2], columns))


@lru_cache(maxsize=1)
def _num_definitions(ptx: str, register: str) -> int:
    """Of a PTX that is looked at by one width after the other."""
    defines = rf"(?:^|[;{{}}])[ \t]*(?:@!?%?\w+[ \t]+)?[a-z][\w.:]*[ \t]+(?:\{{[^}}]*)?{register}\b"
    return len(re.findall(defines, ptx, re.M))


def _followed(lines: Sequence[str], register: str, number: int) -> list[str]:
    """Without the tests of the number, and what only their other ways lead to."""
    tables = [found[1].replace(",", " ") for line in lines if (found := TABLE.search(line))]
    left = Counter(name for line in lines if "bra" in line for name in GOES.findall(line))
    left += Counter(name for table in tables for name in table.split())
    found, jump, known, passes = list[str](), -1, "", False
    for line, following in zip(lines, (*lines[1:], ""), strict=True):
        if (label := LABEL.match(line)) and left[label[1]]:
            if jump >= 0 and found[jump] == f"bra.uni {label[1]};":
                # A branch to the next line is none.
                found[jump], left[label[1]] = "", left[label[1]] - 1
                line = line if left[label[1]] else ""
            jump = -1
        elif branch := BRANCH.match(line):
            if jump >= 0 or (branch[1] == known and not passes):
                line, left[branch[2]] = "", left[branch[2]] - 1
            elif branch[1] in (None, known):
                line, jump = f"bra.uni {branch[2]};", len(found)
        elif jump >= 0:
            left.subtract(GOES.findall(line))
            line = ""
        elif (test := TEST.match(line)) and test[2] == register:
            branch = BRANCH.match(following)
            if branch and branch[1] == test[1]:
                known, passes = test[1], number >= int(test[3])
                found.append("")
                continue
        known = ""
        found.append(line)
    return found


class Checked(NamedTuple):
    """Programs of a kernel and of PTX that have one language; threads that go the same ways, and
    the events of each that were compared."""

    skeleton: Skeleton
    runs: Runs
    classes: list[tuple[int, list[Member]]]
    met: dict[int, set[Met]] | None
    """By the threads; kept if there are other widths."""

    def like(self, other: Checked) -> bool:
        """Whether those of `other` have one language, too. False where that is not seen."""
        mine, yours = self.skeleton, other.skeleton
        of_both = [(x.successors, x.changes, x.end, x.fills.keys()) for x in (mine, yours)]
        if of_both[0] != of_both[1] or self.classes != other.classes:
            return False
        if self.runs.program.places != other.runs.program.places:
            return False
        if _shown(self.runs) != _shown(other.runs):
            return False
        members = [member for _, members in self.classes for member in members]
        return self._became(other) and all(
            _filled(of, members, yours.threads[node])
            == _filled(yours.fills[node], members, yours.threads[node])
            for node, of in mine.fills.items()
        )

    def _became(self, other: Checked) -> bool:
        """Whether events that were the same still are, of no more threads."""
        pairs = dict[tuple[int, Origin], list[tuple[Told, Told]]]()
        for (at, of), (_, to) in zip(self._told(), other._told(), strict=True):
            pairs.setdefault(at, []).append((of, to))
        changed = {at for at, several in pairs.items() if any(x != y for x, y in several)}
        for (x, who), (y, others) in chain(*(pairs[at] for at in changed)):
            if x[2:] != y[2:] or x.kind in ALWAYS or others & ~who:
                return False
        for everybody, several in (self.met or {}).items():
            for letter, origins in several:
                if changed.isdisjoint(origins):
                    continue
                now = {
                    (y[:2], who & everybody)
                    for (x, _), (y, who) in chain(*(pairs[at] for at in origins))
                    if x.kind == letter.kind and letter.detail in ("", x.detail)
                }
                if len(now) != 1:
                    return False
        return True

    def _told(self) -> Iterator[tuple[tuple[int, Origin], Told]]:
        for node, letter in enumerate(self.skeleton.letters):
            yield (0, node), (letter or WAY, self.skeleton.threads[node])
        for of in self.runs.program.read:
            if isinstance(of, Event):
                yield (1, of.line), (of.letter, of.may)


WAY = Letter("a way")
ALWAYS = {*KINDS, WAY.kind, "elect.sync"}
"""Of the same threads at all widths."""
Told = tuple[Letter, int]
"""A letter, and who tells it."""


def _filled(fill: Fill, members: Sequence[Member], threads: int) -> list[Any]:
    parts = (getattr(fill, x.name) for x in fields(fill))
    who = [member for member in members if threads >> member[0] & 1]
    return [[x(*member) for member in who] if callable(x) else x for x in parts]


def _shown(runs: Runs) -> list[Any]:
    """All that ways and letters depend on, but for what letters tell from the start."""
    shown = list[Any]()
    for step in runs.steps:
        if isinstance(step, Step):
            d = step.d
            texts = [(text, d.at) for text in read(d)]
            shown += step.slot, d.op, d.operands, d.guard
        else:
            token, of = runs.program.tokens[step], runs.program.read[step]
            asked = of.asked if isinstance(of, Event) else ()
            texts = [(ask.text, ask.at) for ask in asked]
            shown += token.label, token.guard, *[ask.field for ask in asked]
            shown += [type(of), *([of.may, of.must, *of.targets] if isinstance(of, Jump) else [])]
        for text, at in texts:
            name, plus = split_address(text)
            slot = runs.slice.slot(name, at)
            shown += slot, plus
            shown += [x.operand(name, at) for x in runs.fixed] if slot is None else ()
    return shown
