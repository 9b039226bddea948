"""SCHEDULED kernels around a few lines, and what codegen and ptxas make of them."""

import pytest

from tests.kernels import CASES
from tests.simulator.kernels import sample_text
from wsdsl import Schedule
from wsdsl.codegen.llvm_module import emit_llvm
from wsdsl.codegen.ptx_emission import emit_ptx
from wsdsl.codegen.ptxas import Assembled, assemble_checked, find_ptxas
from wsdsl.ir.op import Kernel
from wsdsl.ir.parser import parse_kernel
from wsdsl.lowering.pipeline import lower

needs_ptxas = pytest.mark.skipif(
    find_ptxas() is None, reason="needs ptxas: pip install nvidia-cuda-nvcc"
)


def kernel_of(body: str, params: str = "", setup: str = "", warpgroups: int = 1) -> Kernel:
    """One compute partition that runs `body`; `setup` stands before it."""
    text = (
        f"kernel sample @ scheduled ({params}) {{\n{setup}\n"
        f'partition(role="compute", num_warps={4 * warpgroups}) {{\n{body}\n}}\n}}\n'
    )
    return parse_kernel(text)


def ptx_of(kernel: Kernel) -> str:
    return emit_ptx(emit_llvm(kernel), kernel.target)


def assembled(kernel: Kernel) -> Assembled:
    found = assemble_checked(kernel, ptx_of(kernel))
    assert found is not None
    return found


def gemm() -> str:
    return sample_text("gemm")


def gemm_128x256() -> str:
    """Lower a GEMM with a tile twice as wide, the fastest schedule of large sizes."""
    schedule = Schedule(tile=dict(m=128, n=256), mode="cooperative", scheduler="persistent")
    return str(lower(CASES["gemm"].with_schedule(schedule)))
