"""Why CTAs can not multiply together as a pair, whatever the rest of the schedule is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wsdsl.ir.op import Kernel, Value, once
from wsdsl.ir.tile_ops import Contract, Load
from wsdsl.ir.types import Axis
from wsdsl.lowering.axes import output_nest
from wsdsl.lowering.cta_pairs import row_indices
from wsdsl.lowering.dependence import depending, loops_depend
from wsdsl.lowering.product_operands import copied_operands
from wsdsl.lowering.slots import operand_slots
from wsdsl.lowering.tensor_sums import summed_parts


@once
def why_not_in_pairs(kernel: Kernel) -> Sequence[str]:
    return [*_reasons(kernel)]


def _reasons(kernel: Kernel) -> Iterator[str]:
    if names := copied_operands(kernel):
        yield f"threads copy {', '.join(sorted(names))}, which is not lowered yet"
    if summed_parts(kernel):
        yield "a sum over a part of a dimension is not lowered yet"
    groups = [group for group in operand_slots(kernel) if group.consumer == "mma"]
    if any(e.producer not in ("load", "scale") for group in groups for e in group.edges):
        yield "an operand is computed, which is not lowered yet"
    body = output_nest(kernel)[1]
    for index in row_indices(kernel):
        varies = depending(body, index)
        if loops_depend(body, varies):
            yield f"what a loop or a condition does depends on `{index.name}`"
        for op in kernel.of(Load):
            own = any(isinstance(v.type, Axis) and v.type.role == "columns" for v in op.index)
            if own and varies & {*op.index} and _is_multiplied(kernel, op.result):
                yield f"each holds half of a tile of `{op.tensor.name}`, and they want others"


def _is_multiplied(kernel: Kernel, value: Value) -> bool:
    return any(value in (op.a, op.b) for op in kernel.of(Contract))
