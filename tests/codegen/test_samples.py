"""Sample kernels: the PTX synchronizes as the IR does, and ptxas has no remark."""

import pytest

from tests.codegen.support import assembled, needs_ptxas
from tests.simulator.kernels import sample
from tests.simulator.test_samples import NAMES
from wsdsl.prover.ptx.check_ptx import check_skeleton


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
