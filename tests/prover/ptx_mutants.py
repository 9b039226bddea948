"""Mutants of the PTX of random kernels: `python -m tests.prover.ptx_mutants 1000 SEED`.

Mutants of compared parts must be caught; those of parts that are compared at sample sizes alone
(docs/prover.md, "The PTX") are counted apart, so that the missed ones can be seen.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random

from tests.prover.hostile_kernels import FEATURES
from tests.prover.random_schedules import random_compiled
from tests.prover.skeletons import objection
from tests.prover.test_skeleton import (
    deleted,
    doubled,
    events,
    is_label,
    moved_out,
    recounted,
    swapped,
    unlooped,
    unpredicated,
)
from wsdsl import Schedule
from wsdsl.dispatch.compiled import Compiled

Mutants = Iterator[tuple[str, list[str]]]
NUMBER = re.compile(r"(?<=, )\d+(?=;)")


def other_parity(lines: list[str]) -> Mutants:
    """A wait for the other phase, or for the same one at all times."""
    for i in events(lines):
        if found := re.search(r"try_wait.*, (%?\w+);", lines[i]):
            for parity in ("0", "1"):
                line = lines[i][: found.start(1)] + parity + lines[i][found.end(1) :]
                yield f"parity {parity} in {lines[i]}", [*lines[:i], line, *lines[i + 1 :]]


def other_branch(lines: list[str]) -> Mutants:
    for i, line in enumerate(lines):
        if found := re.match(r"\s*@(!?)(%p\d+ bra)", line):
            other = f"@{'' if found[1] else '!'}{found[2]}{line[found.end() :]}"
            yield f"other branch {line}", [*lines[:i], other, *lines[i + 1 :]]


def other_bound(lines: list[str]) -> Mutants:
    """Bounds of loops, and what data are compared with; among them are lengths of rings."""
    for i, line in enumerate(lines):
        if line.lstrip().startswith("setp.") and (found := NUMBER.search(line)):
            other = f"{line[: found.start()]}{int(found[0]) + 1}{line[found.end() :]}"
            yield f"{found[0]} and one in {line}", [*lines[:i], other, *lines[i + 1 :]]


def other_length(lines: list[str]) -> Mutants:
    """A ring that is longer or shorter: a register is one more, and begins again at a number."""
    for i, line in enumerate(lines):
        found = re.match(r"\s*setp\.(?:eq|ne)\.b32 \s*%p\d+, (%r\d+), (\d+);", line)
        before = f"add.s32 \t{found[1]}," if found else ""
        turns = any(before in held and held.endswith(", 1;") for held in lines[max(0, i - 3) : i])
        if found and turns:
            for number in (int(found[2]) + 1, int(found[2]) - 1):
                other = f"{line[: found.start(2)]}{number}{line[found.end(2) :]}"
                yield f"{number} for {line}", [*lines[:i], other, *lines[i + 1 :]]


def made_late(lines: list[str]) -> Mutants:
    """The register of an address is made behind the event that reads it."""
    for i in events(lines):
        for name in re.findall(r"\[(%r\d+|[a-z]+)[+\]]", lines[i]):
            for j in range(i - 1, 0, -1):
                if is_label(lines[j]) or " bra" in lines[j]:
                    break
                if re.match(rf"\s*[a-z][\w.:]*\s+{re.escape(name)},", lines[j]):
                    if lines[j] in itertools.takewhile("{".__ne__, reversed(lines[:j])):
                        break  # It was computed before.
                    late = [*lines[:j], *lines[j + 1 : i + 1], lines[j], *lines[i + 1 :]]
                    yield f"{lines[j]} behind {lines[i]}", late
                    break


def other_lanes(lines: list[str]) -> Mutants:
    """Not all lanes of a warp elect one, or exchange what they have."""
    for i, line in enumerate(lines):
        if re.match(r"\s*(elect|shfl)\.sync", line):
            yield f"one lane of {line}", [*lines[:i], line.replace("-1;", "1;"), *lines[i + 1 :]]


ACCESS = re.compile(
    r"\s*(?:@!?%\w+\s+)?(?:(ld|st)matrix|(ld|st|red)\.(shared|global)(?!::|\.nc|\.v?\d*\.nc))\b"
)


def accessed(line: str) -> tuple[bool, str] | None:
    """Whether a thread reads, and where."""
    found = ACCESS.match(line)
    return found and ("ld" in (found[1], found[2]), found[3] or "shared")


def overtaken(lines: list[str], others: bool = False) -> Mutants:
    """A thread's access to memory on the other side of an event, where it has no other of its kind
    up to the next event, unless with `others`.
    """
    ordered = {*events(lines)} | {i for i, x in enumerate(lines) if re.search(r"\bred\.re", x)}
    for i, line in enumerate(lines):
        if not accessed(line):
            continue
        for step in (1, -1):
            met, at = list[int](), i + step
            while 0 < at < len(lines) and len(met) < 2 and not is_label(lines[at]):
                if " bra" in lines[at] or (
                    not others and met and accessed(lines[at]) == accessed(line)
                ):
                    break
                met += [at] * (at in ordered)
                at += step
            if len(met) == 2 and "try_wait" not in lines[met[0]]:
                made = [*lines[:i], *lines[i + 1 :]]
                made.insert(met[0], line)
                yield f"{line} beyond {lines[met[0]]}", made


def overtaken_with_others(lines: list[str]) -> Mutants:
    return overtaken(lines, others=True)


def other_place(lines: list[str]) -> Mutants:
    """An access of a thread outside of its array; a store to SMEM also in the first one."""
    for i, line in enumerate(lines):
        found = re.search(r"\[(%\w+)(?:\+(-?\d+))?\]", line)
        if found and (access := accessed(line)):
            plus, far = int(found[2] or 0), 1 << (17 if access[1] == "shared" else 30)
            first = [0] * (access == (False, "shared") and plus > 0)
            for to in {plus + far, plus - far, *first}:
                other = f"{line[: found.start()]}[{found[1]}+{to}]{line[found.end() :]}"
                yield f"{other} for {line}", [*lines[:i], other, *lines[i + 1 :]]


def left_out(lines: list[str]) -> Mutants:
    """A store to SMEM."""
    for i, line in enumerate(lines):
        if accessed(line) == (False, "shared"):
            yield f"without {line}", [*lines[:i], *lines[i + 1 :]]


def other_descriptor(lines: list[str]) -> Mutants:
    """Another place, stage or layout of an operand in SMEM."""
    for i, line in enumerate(lines):
        if found := re.match(r"(add\.s32 l[ab], )(%r\d+), (\d+);", line):
            to, base, plus = found.groups()
            others = {f"{to}{base}, {int(plus) + 2};", f"{to}{1 << 16}, {plus};"}
        elif found := re.match(r"(mov\.b32 h[ab], )(\d+);", line):
            others = {f"{found[1]}{int(found[2]) ^ 64};"}
        else:
            continue
        for other in sorted(others):
            yield f"{other} for {line}", [*lines[:i], other, *lines[i + 1 :]]


def changed_flags(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Another element or pointer of each semaphore, another amount, another test of a wait."""
    for i, line in enumerate(lines):
        if found := re.search(r"(?:red\.(?:release|relaxed)|ld\.acquire)\S+ .*(\[%rd\d+)\]", line):
            yield from ((i, line.replace(f"{found[1]}]", f"{found[1]}+{n}]")) for n in (4, -4))
            register = found[1][1:]
            made = next(
                j for j in range(i, 0, -1) if re.match(rf"\s*add\.s64 \s*{register},", lines[j])
            )
            base, offset = re.findall(r"%rd\d+", lines[made])[1:]
            yield made, lines[made].replace(f"{offset};", f"{base};")
            load = next(j for j, x in enumerate(lines) if re.search(rf"ld\.param.*{base},", x))
            yield load, re.sub(r"_\d+\]", "_0]", lines[load])
            if amount := re.search(r", (%r\d+);", line):
                yield i, line.replace(amount[1], "1")
        if re.match(r"setp\.lt\.s32 less", line):
            yield i, line.replace("lt", "gt")
            yield i, re.sub(r"%r\d+;", "0;", line)


def other_flag(lines: list[str]) -> Mutants:
    for i, line in changed_flags(lines):
        yield f"{line} for {lines[i]}", [*lines[:i], line, *lines[i + 1 :]]


COMPARED = (
    overtaken,
    made_late,
    other_lanes,
    deleted,
    doubled,
    recounted,
    swapped,
    moved_out,
    unpredicated,
    unlooped,
    other_parity,
    other_length,
    other_descriptor,
)
OF_FEATURES = (other_flag,)
AT_SAMPLES = (other_branch, other_bound, other_place, left_out, overtaken_with_others)


def of_features() -> Iterator[tuple[str, str, Compiled]]:
    """As `random_compiled`, of each feature of the hardware and of the schedule."""
    for name, (case, words) in FEATURES.items():
        known = {"D": dict(case.sizes)["D"]} if "D" in dict(case.sizes) else {}
        yield name, name, case.kernel._compile(Schedule(**words), known, ())


def attack(
    count: int, seed: int, each: int = 4, kernels: Iterable[tuple[str, str, Compiled]] | None = None
) -> tuple[Counter[tuple[str, bool]], list[str]]:
    """Of `count` mutants, `each` of a kind and kernel, random ones behind `kernels`: (kind, whether
    it was caught), and what was missed of that which is compared."""
    rng, told, missed = Random(seed), Counter[tuple[str, bool]](), list[str]()
    for _, what, made in itertools.chain(kernels or (), random_compiled(seed)):
        lines = made.ptx.splitlines()
        for kind in (*COMPARED, *OF_FEATURES, *AT_SAMPLES):
            found = list(kind(lines))
            for mutant, ptx in rng.sample(found, min(each, len(found))):
                if told.total() == count:
                    return told, missed
                caught = bool(objection(made.scheduled, "\n".join(ptx)))
                told[kind.__name__, caught] += 1
                if kind not in AT_SAMPLES and not caught:
                    missed.append(f"{mutant.strip()} of {what}")
    raise AssertionError("random kernels end")


def main(count: int, seed: int) -> int:
    told, missed = attack(count, seed, kernels=of_features())
    for kind in sorted({kind for kind, _ in told}):
        print(f"{kind}: {told[kind, True]} caught, {told[kind, False]} not")
    for what in missed:
        print(f"MISSED {what}")
    return min(1, len(missed))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
