"""In the PTX, too, threads wait for the kernel in front before they look at GMEM."""

import dataclasses
import re

import pytest

from tests.kernels import CASES
from wsdsl import Schedule
from wsdsl.diagnostics import VerifyError
from wsdsl.dispatch.compiled import Compiled
from wsdsl.prover.memory.early_accesses import check_early_accesses

WAIT = "griddepcontrol.wait;"
NO_COHERENCE = r"^.*ld\.global\.nc[^;]*;"
SMALL = Schedule(tile=dict(m=64, n=32, k=32), consumers=1, stages=2)
EARLY = dataclasses.replace(SMALL, pdl_independent=("B",))


def epilogue(schedule: Schedule, unaligned: tuple[str, ...] = ()) -> Compiled:
    return CASES["epilogue"].kernel._compile(schedule, {}, unaligned)


def refused(compiled: Compiled, ptx: str) -> bool:
    assert ptx != compiled.ptx
    try:
        check_early_accesses(compiled.scheduled, ptx, compiled.signature.owners)
    except VerifyError as error:
        assert "may precede `griddepcontrol.wait`" in str(error)
        return True
    return False


@pytest.mark.parametrize("schedule", [SMALL, EARLY], ids=["in front", "in the partitions"])
def test_loads_are_behind_the_wait(schedule: Schedule) -> None:
    compiled = epilogue(schedule)
    ptx = compiled.ptx
    check_early_accesses(compiled.scheduled, ptx, compiled.signature.owners)
    load = re.search(NO_COHERENCE, ptx, re.M)
    assert load is not None
    # The wait of the load's own partition is the last one in front of it in the text.
    at = ptx.rindex(WAIT, 0, load.start())
    without = ptx[:at] + ptx[at + len(WAIT) :]
    assert refused(compiled, without)
    assert refused(compiled, f"{ptx[:at]}@%p1 {ptx[at:]}")
    moved = ptx[: load.start()] + ptx[load.end() :]
    assert refused(compiled, f"{moved[:at]}{load[0]}\n{moved[at:]}")
    end = load.end()
    assert refused(compiled, f"{without[: end - len(WAIT)]}\n{WAIT}{without[end - len(WAIT) :]}")
    around = f"@%p1 bra $around;\n{WAIT}\n$around:"
    assert refused(compiled, ptx[:at] + around + ptx[at + len(WAIT) :])


@pytest.mark.parametrize(
    ("unaligned", "found"),
    [((), r"cp\.async\.bulk\.tensor"), (("B",), r"ld\.global\.nc")],
    ids=repr,
)
def test_only_constant_tensors_are_loaded_early(unaligned: tuple[str, ...], found: str) -> None:
    compiled = epilogue(EARLY, unaligned)
    owners = compiled.signature.owners
    check_early_accesses(compiled.scheduled, compiled.ptx, owners)
    other = dataclasses.replace(EARLY, pdl_independent=("A",))
    compiled.scheduled = dataclasses.replace(compiled.scheduled, schedule=other)
    with pytest.raises(VerifyError, match=found):
        check_early_accesses(compiled.scheduled, compiled.ptx, compiled.signature.owners)


def test_ptxas_leaves_loads_behind_the_wait() -> None:
    lines = epilogue(SMALL).sass.splitlines()
    wait, *_ = (n for n, line in enumerate(lines) if "ACQBULK" in line)
    loads = [n for n, line in enumerate(lines) if "LDG" in line]
    assert loads and wait < min(loads)
