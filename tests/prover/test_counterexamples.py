"""Counterexamples: readable, as short as may be, and the simulator goes the same way."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.kernels import CASES, inputs
from tests.simulator.hostile_mutants import depths
from tests.simulator.mutants import mutants
from tests.test_mutations import SMALL, scheduled
from wsdsl import Schedule
from wsdsl.diagnostics import ProofError, VerifyError
from wsdsl.ir.op import Kernel
from wsdsl.prover.failure import GLOBAL_ORDER
from wsdsl.prover.machine.counterexample import Counterexample
from wsdsl.prover.prove import prove
from wsdsl.simulator.simulation import simulate
from wsdsl.simulator.simulation_error import SimulationError


def refutation(kernel: Kernel) -> Counterexample | None:
    try:
        prove(kernel)
    except ProofError as error:
        return error.counterexample
    except VerifyError:
        return None
    return None


def replay(name: str, kernel: Kernel, found: Counterexample) -> str:
    assert found.sizes is not None
    arrays = inputs(CASES[name], 0, **found.sizes)
    try:
        simulate(kernel, arrays, script=found.script, num_sms=1, agents="lazy")
    except SimulationError as error:
        return str(error)
    return ""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("threads", [False, True], ids=["tma", "threads"])
@pytest.mark.parametrize("name", ["gemm", "held_operand"])
def test_the_simulator_goes_the_same_way(
    name: str, threads: bool, each: Callable[[int], int]
) -> None:
    schedule, sizes, *_ = SMALL[name]
    kernel = scheduled(CASES[name], schedule, sizes, threads)
    replayed = 0
    missed: list[str] = []
    with np.errstate(all="ignore"):
        for what, mutant in list(mutants(kernel))[:: each(3)]:
            found = refutation(mutant)
            if found is not None and found.kind != GLOBAL_ORDER:
                assert found.steps or found.kind in ("registers", "misuse"), what
                if replay(name, mutant, found):
                    replayed += 1
                else:
                    missed.append(f"{what}: {found.kind}: {found.message}")
    assert missed == []
    assert replayed > (20 if each(3) == 1 else 6)


def test_an_arrival_that_is_left_out_has_no_barrier() -> None:
    """A loop without iterations releases nothing, and its state may be anything by then."""
    tile = dict(m=128, n=24, k=32, l=64)
    schedule = Schedule(tile=tile, stages=2, consumers=3, consumer_split="n", scheduler="grid")
    deeper = dict(depths(scheduled(CASES["two_loops"], schedule, {}, False)))["depth 2 +1"]
    with pytest.raises(ProofError, match=r"stage 2 of `\w+`, which has 2"):
        prove(deeper)
