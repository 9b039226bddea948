"""What each pass makes of a small gemm, as one golden file a pass."""

import pytest

from tests.kernels import CASES
from wsdsl.ir.op import Kernel
from wsdsl.lowering.pipeline import PASSES, lower
from wsdsl.schedule import Schedule

SMALL = Schedule(tile=dict(m=64, n=32, k=32), consumers=1, stages=2)


def stages() -> dict[str, Kernel]:
    import dataclasses

    made: dict[str, Kernel] = {}
    kernel = dataclasses.replace(CASES["gemm"].kernel.tile, schedule=SMALL)
    lower(kernel, listeners=[lambda name, before, after: made.update({name: after})])
    return made


@pytest.fixture(scope="module")
def made() -> dict[str, Kernel]:
    return stages()


@pytest.mark.parametrize("name", [step.__name__ for step, _ in PASSES])
def test_pass(name: str, made: dict[str, Kernel], golden) -> None:
    golden(str(made[name]), suffix=".ir")
