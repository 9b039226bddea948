"""A few of the mutants that `python -m tests.prover.hostile N SEED` draws by the thousand."""

from random import Random

import pytest

from tests.prover.hostile import attack
from tests.prover.hostile_kernels import scheduled
from tests.simulator.hostile_mutants import hostile_mutants
from wsdsl import Schedule
from wsdsl.diagnostics import VerifyError
from wsdsl.ir.op import Kernel
from wsdsl.ir.verify.verifier import verify
from wsdsl.prover.machine.explore import Refuted, explore

SMALL = Schedule(tile=dict(m=64, n=32), stages=2, consumers=1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["gemm", "if_summed"])
def test_whatever_does_harm_is_refused(name: str) -> None:
    outcome = attack([scheduled(name, SMALL, (), Random(1))], 10, seed=1)
    assert (outcome.missed, outcome.alarms) == ([], [])
    assert outcome.harmful >= 5


@pytest.mark.parametrize("name", ["gemm", "two_products"])
def test_no_other_accumulator_or_start_of_an_operand_is_proved(name: str) -> None:
    kernel = scheduled(name, SMALL, (), Random(1)).kernel
    mutants = [(what.split()[0], what, made) for what, made in hostile_mutants(kernel)]
    starts = [x for x in mutants if x[0] == "start" and "= smem_descriptor" in x[1]]
    accumulators = [x for x in mutants if x[0] == "acc"]
    assert starts and accumulators
    held = (*accumulators, *starts[::4])
    assert [what for _, what, mutant in held if is_proved(mutant)] == []


def is_proved(kernel: Kernel) -> bool:
    """Without a search for the counterexample."""
    try:
        verify(kernel)
        explore(kernel)
    except (Refuted, VerifyError):
        return False
    return True
