"""Semaphores of split-K and stream-K: which one, and by how much, is compared with the kernel."""

import pytest

from tests.kernels import CASES
from tests.prover.ptx_mutants import changed_flags
from tests.prover.skeletons import objection
from wsdsl import Schedule
from wsdsl.prover.skeleton_of_flags import differing_flag
from wsdsl.prover.skeleton_of_kernel import skeleton_of_kernel
from wsdsl.prover.skeleton_of_ptx import Program

SCHEDULES = (
    Schedule(tile=dict(m=128, n=16), stages=2, consumers=2, scheduler="split_k", splits=3),
    Schedule(tile=dict(m=64, n=16), stages=2, scheduler="split_k", splits=3, reduction="parallel"),
)


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
