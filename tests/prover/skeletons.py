"""Kernels whose PTX is checked. `python -m tests.prover.skeletons` checks every case of
tests/kernels.py by every schedule, copied by TMA and by threads: alarms without a reason.
"""

from __future__ import annotations

import sys
from functools import cache

from tests.kernels import CASES
from wsdsl import Schedule, ScheduleError
from wsdsl.diagnostics import VerifyError
from wsdsl.dispatch.compiled import Compiled
from wsdsl.ir.op import Kernel
from wsdsl.prover.ptx.check_ptx import check_skeleton

SCHEDULES = {
    "default": None,
    "small": Schedule(tile=dict(m=64, n=64), consumers=1, stages=2),
    "one_stage": Schedule(stages=1),
    "narrow": Schedule(tile=dict(n=32), stages=2),
    "odd": Schedule(tile=dict(m=64, n=40), consumers=1, stages=3),
    "grid": Schedule(scheduler="grid"),
    "short": Schedule(tile=dict(n=128, k=32), stages=4),
    "three": Schedule(tile=dict(m=192, n=64), consumers=3),
    "deep": Schedule(tile=dict(k=128)),
    "sums": Schedule(tile=dict(m=128, n=64), consumers=2, stages=2, cluster=dict(k=2)),
    "neighbours": Schedule(tile=dict(n=64), stages=2, cluster=dict(m=2), multicast=False),
    "early": Schedule(tile=dict(m=64, n=64), consumers=1, stages=2, pdl_independent=("B",)),
}


@cache
def compiled(name: str, schedule: str = "default", threads: bool = False) -> Compiled:
    case = CASES[name]
    names = tuple(p.name for p in case.kernel.tile_ir.params) if threads else ()
    return case.kernel._compile(SCHEDULES[schedule], dict(case.sizes), names)


def objection(kernel: Kernel, ptx: str) -> str:
    try:
        check_skeleton(kernel, ptx)
    except VerifyError as error:
        assert "expected " in str(error) and ", the PTX has " in str(error)
        return str(error)
    return ""


def main() -> int:
    status = checked = 0
    for name in CASES:
        for schedule in SCHEDULES:
            for threads in (False, True):
                try:
                    made = compiled(name, schedule, threads)
                except ScheduleError:  # which are refused is another test's
                    continue
                checked += 1
                if told := objection(made.scheduled, made.ptx):
                    status = 1
                    print(f"{name}, {schedule}, {threads=}: {told}", flush=True)
    print(f"{checked} kernels")
    return status


if __name__ == "__main__":
    sys.exit(main())
