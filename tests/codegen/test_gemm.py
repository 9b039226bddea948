"""The gemm: its resources, and that the same kernel gives the same text."""

import re

import pytest

from tests.codegen.support import assembled, gemm, gemm_128x256, needs_ptxas, ptx_of
from wsdsl.codegen.llvm_module import emit_llvm
from wsdsl.codegen.ptx_emission import emit_ptx
from wsdsl.codegen.ptxas import disassemble
from wsdsl.diagnostics import CompileError
from wsdsl.ir.parser import parse_kernel


def test_same_kernel_same_text() -> None:
    small, large = parse_kernel(gemm()), parse_kernel(gemm_128x256())
    first = [emit_llvm(small), emit_llvm(large)]
    again = [emit_llvm(large), emit_llvm(small)]
    assert first == again[::-1]
    assert [emit_ptx(t) for t in first] == [emit_ptx(t) for t in again][::-1]


def test_ptx_version() -> None:
    """Drivers from CUDA 12.3 on take it."""
    ptx = ptx_of(parse_kernel(gemm()))
    assert ".version 8.3" in ptx
    assert ".target sm_90a" in ptx
    assert ".reqntid 384" in ptx


def test_ops_without_order() -> None:
    """Each warp stores its 16 lines of 64 columns by four instructions, in both halves."""
    ptx = ptx_of(parse_kernel(gemm()))
    assert ptx.count("stmatrix.sync.aligned.m8n8.x4.shared.b16") == 8
    assert ptx.count("prefetch.tensormap") == 3


@needs_ptxas
@pytest.mark.parametrize("text", [gemm(), gemm_128x256()], ids=["128x128", "128x256"])
def test_resources(text: str) -> None:
    found = assembled(parse_kernel(text))
    assert found.resources.registers == 168
    assert found.resources.spill_store_bytes == found.resources.stack_bytes == 0
    assert "C75" not in found.log
    try:
        sass = disassemble(found.cubin)
    except CompileError:
        pytest.skip("needs nvdisasm: pip install nvidia-cuda-nvdisasm")
    lines = [line for line in sass.splitlines() if re.search(r"^\s+/\*[0-9a-f]{4,}\*/", line)]
    at = [i for i, line in enumerate(lines) if "HGMMA" in line]
    assert len(at) == 4
    assert all("gdesc[UR" in lines[i] for i in at)
    between = "\n".join(lines[at[0] : at[-1]])
    assert not re.search(r"\bMOV R|R2UR", between), "accumulators or descriptors are moved"


def test_not_scheduled() -> None:
    with pytest.raises(CompileError, match="needs a scheduled kernel"):
        emit_llvm(parse_kernel("kernel k @ tile () {\n}\n"))
