"""Operands that are computed from sums in tensor memory: the threads that read these write them to
SMEM, for the thread that multiplies.
"""

from __future__ import annotations

from collections.abc import Mapping

from wsdsl.ir.op import Kernel, Value, once
from wsdsl.ir.tile_ops import Contract
from wsdsl.ir.types import Tile
from wsdsl.lowering.decode import decoded
from wsdsl.lowering.product_operands import computed_operands


@once
def handed_back(kernel: Kernel) -> Mapping[Value, Tile]:
    """As they lie in SMEM: in lines along the axis that is summed over."""
    found = dict[Value, Tile]()
    for op in kernel.of(Contract):
        for value in computed_operands(kernel, op):
            if value not in decoded(kernel).tiles and len(op.summed) == 1:
                kind, (summed,) = value.as_tile, op.summed
                first = next(x for x in kind.axes if x != summed)
                found[value] = Tile(kind.dtype, (first, summed))
    return found
