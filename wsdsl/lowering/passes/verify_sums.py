"""Reject, at its line, each construct that is lowered for accumulators in registers and not yet for
accumulators in tensor memory.

Before and after: the same kernel; all findings are raised at once as a CompileError.

Why here: MMAs add to the accumulators that loops carry, and loop-invariant values have left loops.
"""

from collections.abc import Iterator

from wsdsl.diagnostics import CompileError, Finding
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import Contract
from wsdsl.lowering.decode import places_of, tensors_of
from wsdsl.lowering.product_operands import computed_operands


def verify_sums(kernel: Kernel) -> Kernel:
    if findings := [*unfit_products(kernel)]:
        raise CompileError(tuple(dict.fromkeys(findings)))
    return kernel


def unfit_products(kernel: Kernel) -> Iterator[Finding]:
    """Yield the findings against the matmuls of a TILE kernel."""
    target = kernel.target
    if not target.has_tensor_memory or not kernel.of(Contract):
        return
    for op in kernel.of(Contract):
        if op.dtype.is_integer and not target.multiplies_integers:
            told = f"WS0331 `@` of {op.dtype}: the tensor cores of {target} do not take integers"
            yield Finding(told, op.loc, 'convert to f8e4m3 or f16, or compile for arch="sm_100a"')
        for value in computed_operands(kernel, op):
            asked = kernel.schedule.operand_transform if kernel.schedule else None
            if "registers" in places_of(asked, tensors_of(kernel, value)):
                told = f"WS0332 a transformed operand in registers is not lowered for {target} yet"
                hint = 'leave operand_transform out, or use "smem", or Schedule(arch="sm_90a")'
                yield Finding(told, op.loc, hint)
