"""The kernels of `tests/samples`: the PTX synchronises as they do, and ptxas has no remark."""

import pytest

from tests.codegen.support import SAMPLES, assembled, needs_ptxas
from wsdsl.ir.op import Kernel
from wsdsl.ir.parser import parse_kernel
from wsdsl.prover.skeleton import check_skeleton

NAMES = sorted(path.name.split(".")[0] for path in SAMPLES.glob("*.scheduled.ir"))


def sample(name: str) -> Kernel:
    return parse_kernel((SAMPLES / f"{name}.scheduled.ir").read_text())


@pytest.mark.sampled
@needs_ptxas
@pytest.mark.parametrize("name", NAMES)
def test_ptxas_has_no_remark(name: str) -> None:
    kernel = sample(name)
    found = assembled(kernel)
    check_skeleton(kernel, found.ptx)
    assert "(C7" not in found.log, "not even a fence or wait that it had to add"
    assert "warning" not in found.log
    assert found.resources.registers == 168
    assert found.resources.spill_store_bytes == found.resources.stack_bytes == 0
