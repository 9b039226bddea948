"""Semaphores of split-K and stream-K: which one, and by how much, is compared with the kernel."""

import re
from collections.abc import Iterator

import pytest

from tests.kernels import CASES
from tests.prover.skeletons import objection
from wsdsl import Schedule
from wsdsl.prover.skeleton_of_flags import differing_flag
from wsdsl.prover.skeleton_of_kernel import skeleton_of_kernel
from wsdsl.prover.skeleton_of_ptx import Program

SCHEDULES = (
    Schedule(tile=dict(m=128, n=16), stages=2, consumers=2, scheduler="split_k", splits=3),
    Schedule(tile=dict(m=64, n=16), stages=2, scheduler="split_k", splits=3, reduction="parallel"),
)


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


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.scheduler)
def test_changed_semaphores_are_reported(schedule: Schedule) -> None:
    made = CASES["gemm"].kernel._compile(schedule, {}, ())
    assert not objection(made.scheduled, made.ptx)
    assert objection(made.scheduled, made.ptx.replace("@less bra", "@!less bra"))
    lines = made.ptx.splitlines()
    mutants = list(changed_flags(lines))
    assert len(mutants) > 10
    _, places = skeleton_of_kernel(made.scheduled)
    missed = list[str]()
    for i, line in mutants:
        program = Program("\n".join([*lines[:i], line, *lines[i + 1 :]]), places)
        if not differing_flag(made.scheduled, program, places.ranks):
            missed.append(line)
    assert missed == []
