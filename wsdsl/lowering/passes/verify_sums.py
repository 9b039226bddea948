"""Refuse, at its line and by name, what is lowered for sums in registers and not yet for sums in
tensor memory.

Before and after: the same kernel; all refusals are raised at once as a CompileError.

Why here: products add to the sums that loops carry, and what a loop does not change has left it.
"""

from __future__ import annotations

from wsdsl.diagnostics import CompileError
from wsdsl.ir.op import Kernel
from wsdsl.lowering.unfit_products import unfit_products


def verify_sums(kernel: Kernel) -> Kernel:
    if findings := [*unfit_products(kernel)]:
        raise CompileError(tuple(dict.fromkeys(findings)))
    return kernel
