"""What reaches into another CTA: into which, and where there."""

import re

import pytest

from tests.kernels import CASES
from tests.prover.ptx_mutants import made_late, other_lanes
from tests.prover.skeletons import objection
from wsdsl import Schedule
from wsdsl.schedule import Arch


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(tile=dict(m=128, n=64), consumers=2, stages=2, cluster=dict(k=2)),
        Schedule(tile=dict(m=64, n=64), consumers=1, stages=2, cluster=dict(k=4)),
        Schedule(tile=dict(m=64, n=64), consumers=1, stages=2, cluster=dict(m=2, k=2)),
    ],
    ids=repr,
)
def test_what_reaches_another_cta_reaches_the_right_one(schedule: Schedule) -> None:
    made = CASES["gemm"].kernel._compile(schedule, {}, ())
    lines = made.ptx.splitlines()
    changed: list[tuple[int, str]] = []
    for i, line in enumerate(lines):
        if found := re.match(r"mapa\S+ (\w+), (%r\d+), (%r\d+);", line):
            to, own, _ = found.groups()
            changed += [(i, f"mov.u32 {to}, {own};"), (i, line.replace(found[3], "0"))]
        elif line.startswith("st.async"):
            changed += [(i, line.replace("[to+", "[to+2048+")), (i, line.replace("[to+", "[to+1"))]
    late = [ptx for _, ptx in (*made_late(lines), *other_lanes(lines))]
    assert len(changed) > 10 and len(late) > 10
    assert all(objection(made.scheduled, "\n".join(ptx)) for ptx in late)
    missed = [
        lines[i]
        for i, line in changed
        if not objection(made.scheduled, "\n".join([*lines[:i], line, *lines[i + 1 :]]))
    ]
    # Of those who give a slot back to all who copy to it one is the CTA itself.
    assert len(missed) <= 2 * ("m" in (schedule.cluster or {}))


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_masks_of_multicast_are_compared(arch: Arch) -> None:
    schedule = Schedule(arch=arch, tile=dict(m=128, n=64), stages=2, cluster=dict(m=2, n=2))
    made = CASES["gemm"].kernel._compile(schedule, {}, ())
    assert not objection(made.scheduled, made.ptx)
    masks = [*re.finditer(r"multicast::cluster.*(%rs\d+);", made.ptx)]
    assert len(masks) == (2 if arch == "sm_90a" else 3)
    for found in masks:
        mutant = f"{made.ptx[: found.start(1)]}1{made.ptx[found.end(1) :]}"
        assert objection(made.scheduled, mutant), found[0]
