"""A few of the mutants that `python -m tests.prover.hostile N SEED` draws by the thousand."""

from random import Random

import pytest

from tests.prover.hostile import attack
from tests.prover.hostile_kernels import scheduled
from wsdsl import Schedule

SMALL = Schedule(tile=dict(m=64, n=32), stages=2, consumers=1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["gemm", "if_summed"])
def test_whatever_does_harm_is_refused(name: str) -> None:
    outcome = attack([scheduled(name, SMALL, (), Random(1))], 10, seed=1)
    assert (outcome.missed, outcome.alarms) == ([], [])
    assert outcome.harmful >= 5
