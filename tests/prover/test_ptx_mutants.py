"""A few mutants of the PTX of random kernels; many are made by tests/prover/ptx_mutants.py."""

from __future__ import annotations

import pytest

from tests.kernels import CASES
from tests.prover.ptx_mutants import COMPARED, attack, overtaken
from tests.prover.skeletons import objection
from wsdsl import Schedule


def test_what_is_compared_is_caught() -> None:
    told, missed = attack(60, seed=2)
    assert missed == []
    assert {kind.__name__ for kind in COMPARED} <= {name.partition(",")[0] for name, _ in told}


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(tile=dict(m=128, n=64, k=64), scheduler="stream_k"),
        Schedule(tile=dict(m=64, n=16), scheduler="split_k", splits=4, reduction="parallel"),
    ],
    ids=lambda schedule: schedule.scheduler,
)
def test_accesses_do_not_pass_events(schedule: Schedule) -> None:
    """A fence follows staged stores, and partial sums are stored before their release."""
    made = CASES["gemm"].kernel._compile(schedule, {}, ())
    lines = made.ptx.splitlines()
    told = dict([*overtaken(lines)][::30])
    for access, event in (("st.global", "red.release"), ("stmatrix", "fence.proxy")):
        before = 0
        for i, line in enumerate(lines):
            before = i if access in line else before
            if event in line and before:
                rest = [*lines[before + 1 : i + 1], lines[before], *lines[i + 1 :]]
                told[f"{access} behind {event}"] = [*lines[:before], *rest]
    assert len(told) > 2
    missed = [what for what, ptx in told.items() if not objection(made.scheduled, "\n".join(ptx))]
    assert missed == []
