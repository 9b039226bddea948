"""Operands that a partition of threads makes in SMEM, on the GPU: right, all written."""

from typing import Any

import pytest

from tests.decoded_kernels import DECODED, FIXED, SCHEDULES
from wsdsl import Schedule

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu


def run(name: str, seed: int, schedule: Schedule, **sizes: int) -> None:
    from tests.gpu import test_cases

    test_cases.run(DECODED[name], seed, schedule, **sizes)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("name", [name for name in DECODED if name not in FIXED])
def test_odd_sizes(name: str, schedule: Schedule) -> None:
    run(name, 0, schedule)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("name", [name for name in DECODED if name not in FIXED])
def test_larger(name: str, schedule: Schedule) -> None:
    """Many tiles a CTA, and many steps of each: rings come round often."""
    run(name, 1, schedule, M=2056, N=1800, K=1040)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("name", [name for name in DECODED if name not in FIXED])
def test_sizes_of_one(name: str, schedule: Schedule) -> None:
    run(name, 2, schedule, M=1, N=1, K=91 if name == "part" else 1)
