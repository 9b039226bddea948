"""What of products is lowered for sums in registers, and not yet for sums in tensor memory."""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.diagnostics import Finding
from wsdsl.ir.op import Kernel
from wsdsl.ir.tile_ops import Contract, Load
from wsdsl.lowering.decode import places_of, tensors_of
from wsdsl.lowering.product_operands import computed_operands, copied_operands, operand_scales
from wsdsl.lowering.scale_loads import kept_out
from wsdsl.lowering.tensor_sums import summed_parts


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
            asked = kernel.schedule.decode if kernel.schedule else None
            if "registers" in places_of(asked, tensors_of(kernel, value)):
                what = f"a computed operand of `@` in registers {told}"
                instead = 'in SMEM it is made if decode is left out, or decode="shared"'
                yield Finding(what, op.loc, f"{instead}; {elsewhere}")
    yield from _unfit_scales(kernel)
    for op in kernel.of(Contract):
        if op.scales and summed_parts(kernel) & {*op.summed}:
            what = f"a product with scales of blocks over a part of a dimension {told}"
            yield Finding(what, op.loc, "walk all of it, or multiply scales in the text")


def _unfit_scales(kernel: Kernel) -> Iterator[Finding]:
    for op in kernel.of(Load):
        if op.result in operand_scales(kernel) and op.tensor.name in kept_out(kernel):
            what = f"TMA brings scales, and rows of `{op.tensor.name}` are no multiple of 16 bytes"
            yield Finding(what, op.loc, "give it rows of a multiple of 16 scales; zeros fill them")
    if operand_scales(kernel) and (names := copied_operands(kernel)):
        what = f"threads copy {', '.join(sorted(names))}, and products with scales then are not"
        yield Finding(f"{what} lowered yet", kernel.loc, "give them rows of a multiple of 16 bytes")
