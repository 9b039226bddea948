"""The kernels of `tests/samples`: they hold, come back from their text, and ptxas has no remark."""

from __future__ import annotations

import pytest

from tests.codegen.support import SAMPLES, assembled, needs_ptxas
from wsdsl.ir.op import Kernel
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.printer import print_kernel
from wsdsl.ir.spec import verify

NAMES = sorted(path.name.split(".")[0] for path in SAMPLES.glob("*.scheduled.ir"))


def sample(name: str) -> Kernel:
    return parse_kernel((SAMPLES / f"{name}.scheduled.ir").read_text())


def test_there_are_samples() -> None:
    assert set(NAMES) >= {"gemm", "gemm_cluster", "gemm_pingpong", "gemm_registers", "stream_k"}


@pytest.mark.parametrize("name", NAMES)
def test_round_trip(name: str) -> None:
    kernel = sample(name)
    verify(kernel)
    again = parse_kernel(print_kernel(kernel))
    verify(again)
    assert again == kernel


@pytest.mark.sampled
@needs_ptxas
@pytest.mark.parametrize("name", NAMES)
def test_ptxas_has_no_remark(name: str) -> None:
    found = assembled(sample(name))
    assert "(C7" not in found.log, "not even a fence or wait that it had to add"
    assert "warning" not in found.log
    assert found.resources.registers == 168
    assert found.resources.spill_store_bytes == found.resources.stack_bytes == 0
