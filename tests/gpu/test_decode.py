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


SIZES = {
    "odd": {},
    "many tiles a CTA, many steps of each": dict(M=2056, N=1800, K=1040),
    "one": dict(M=1, N=1),
}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("name", [name for name in DECODED if name not in FIXED])
def test_sizes(name: str, schedule: Schedule, sizes: str) -> None:
    one = dict(K=91 if name == "part" else 1) if sizes == "one" else {}
    run(name, [*SIZES].index(sizes), schedule, **SIZES[sizes], **one)
