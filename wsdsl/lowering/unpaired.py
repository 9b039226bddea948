"""Why CTAs can not multiply together as a pair, whatever the rest of the schedule is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wsdsl.ir.op import Kernel, Op, Region, Value, once, operands, results_of
from wsdsl.ir.tile_ops import Contract, ForEach, ForTiles, If, Load
from wsdsl.ir.types import Axis
from wsdsl.ir.walk import walk, yielded
from wsdsl.lowering.axes import axes_of, is_tile, output_nest
from wsdsl.lowering.product_operands import copied_operands
from wsdsl.lowering.slots import operand_slots
from wsdsl.lowering.tensor_sums import summed_parts


@once
def unpaired(kernel: Kernel) -> Sequence[str]:
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
    for index in _row_indices(kernel):
        varies = _told_by(index, body)
        if any(varies & _ways(op) for op in walk(body)):
            yield f"what a loop or a condition does depends on `{index.name}`"
        for op in kernel.of(Load):
            own = any(isinstance(v.type, Axis) and v.type.role == "columns" for v in op.index)
            if own and varies & {*op.index} and _is_multiplied(kernel, op.result):
                yield f"the two CTAs want other tiles of `{op.tensor.name}`"


def _told_by(index: Value, body: Region) -> set[Value]:
    """Numbers, and where loops are, that depend on an index; tiles tell neither."""
    known, before = {index}, 0
    while len(known) > before:
        before = len(known)
        for op in walk(body):
            if isinstance(op, (ForTiles, ForEach)):
                known |= {op.index} if known & _ways(op) else set()
                carried = zip(op.init, yielded(op.body), op.args, op.result, strict=True)
                for first, last, *others in carried:
                    known |= {*others} if known & {first, last} and not is_tile(first) else set()
            elif known & {*operands(op)}:
                known |= {v for v in results_of(op) if not is_tile(v)}
    return known


def _ways(op: Op) -> set[Value]:
    """What tells how often a loop runs, or what a condition takes."""
    match op:
        case ForTiles(start=start, stop=stop):
            return {v for v in (start, stop) if v is not None}
        case If(cond=cond):
            return {cond}
        case _:
            return set()


def _row_indices(kernel: Kernel) -> list[Value]:
    """Of the loops over the output that walk rows."""
    axes, indices = axes_of(kernel), (loop.index for loop in output_nest(kernel)[0])
    kinds = [(v, v.type) for v in indices]
    return [v for v, kind in kinds if isinstance(kind, Axis) and axes[kind.name].role == "rows"]


def _is_multiplied(kernel: Kernel, value: Value) -> bool:
    return any(value in (op.a, op.b) for op in kernel.of(Contract))
