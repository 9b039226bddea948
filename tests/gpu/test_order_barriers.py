"""Consumers of a chain of products that follow one another once an iteration, on the GPU: right,
all written.
"""

from typing import Any

import numpy as np
import pytest

from tests.kernels import CASES
from tests.lowering.test_ranges import arrays_for, kernel_of
from wsdsl import Schedule

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

SCHEDULES = [
    Schedule(order_barriers=True, consumers=2),
    Schedule(order_barriers=True, consumers=2, stages=1, scheduler="grid"),
    Schedule(order_barriers=True, tile=dict(m=192, n=64), consumers=3),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("keys", [1, 100, 2000])
def test_attention(schedule: Schedule, keys: int) -> None:
    from tests.gpu import test_cases

    test_cases.run(CASES["attention"], keys, schedule, H=24, M=1500, N=keys, D=64)


@pytest.mark.parametrize("name", ["causal", "packed"])
def test_parts_of_a_dimension(name: str) -> None:
    """Loops of unequal lengths, and of none."""
    kernel = kernel_of(name)
    schedule = Schedule(tile=dict(q=128, t=64), consumers=2, order_barriers=True)
    arrays = arrays_for(kernel, 0)
    wanted = {n: np.copy(a) for n, a in arrays.items()}
    kernel.reference(**wanted)
    kernel.compile(schedule, D=64)(*arrays.values())
    for n, got in arrays.items():
        wide = (np.asarray(x, np.float64) for x in (got, wanted[n]))
        np.testing.assert_allclose(*wide, rtol=1e-2, atol=1e-2, err_msg=n)
