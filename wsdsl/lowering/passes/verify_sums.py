"""Refuse, at its line and by name, what is lowered for sums in registers and not yet for sums in
tensor memory.

Before and after: the same kernel; all refusals are raised at once as a CompileError.

Why here: products add to the sums that loops carry, and what a loop does not change has left it.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.diagnostics import CompileError, Finding
from wsdsl.ir.op import Kernel
from wsdsl.ir.tile_ops import Contract
from wsdsl.lowering.decode import places_of, tensors_of
from wsdsl.lowering.product_operands import computed_operands


def verify_sums(kernel: Kernel) -> Kernel:
    if findings := [*unfit_products(kernel)]:
        raise CompileError(tuple(dict.fromkeys(findings)))
    return kernel


def unfit_products(kernel: Kernel) -> Iterator[Finding]:
    """Of a TILE kernel, at its lines."""
    target = kernel.target
    if not target.has_tensor_memory or not kernel.of(Contract):
        return
    told, elsewhere = f"is not lowered for {target} yet", 'Schedule(arch="sm_90a") takes it'
    for op in kernel.of(Contract):
        if op.dtype.is_integer and not target.multiplies_integers:
            what = f"`@` of {op.dtype}: the tensor cores of {target} take no integers"
            yield Finding(what, op.loc, 'convert to f8e4m3 or f16, or compile for arch="sm_100a"')
        for value in computed_operands(kernel, op):
            asked = kernel.schedule.operand_transform if kernel.schedule else None
            if "registers" in places_of(asked, tensors_of(kernel, value)):
                what = f"a computed operand of `@` in registers {told}"
                instead = 'in SMEM it is made if operand_transform is left out, or "smem"'
                yield Finding(what, op.loc, f"{instead}; {elsewhere}")
