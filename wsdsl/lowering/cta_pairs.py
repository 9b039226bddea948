"""Pairs of CTAs that multiply together on tensor memory (`Schedule.cta_group=2`).

The two are neighbours along the axis of the products' rows. Each has an output tile, with its sums
and its rows of the one operand; of the other operand, of which both want the same tile, each holds
half, and the tensor cores of both read both halves. So an SM loads and reads less for a product.

A thread of the first CTA, the leader, starts what both do: it waits on barriers of its own, on
which all of both CTAs arrive (copies count there, too), and commits to those of both.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from wsdsl.ir.op import Kernel, Value, once, walk
from wsdsl.ir.ops import ConsumerWait, Contract, Load, Partition, ProducerAcquire
from wsdsl.ir.types import Axis
from wsdsl.lowering.axes import axes_of, loop_variable, output_nest
from wsdsl.lowering.buffer_assignment import operand_slots
from wsdsl.lowering.dependence import depending, loops_depend
from wsdsl.lowering.product_operands import copied_operands
from wsdsl.lowering.tmem_accumulators import summed_parts
from wsdsl.schedule import Schedule, changed

PAIR = 2
LEADER = 0
"""Its rank: a cluster is a pair."""
BOTH = 0b11
"""Their ranks, as a mask."""


def in_pairs(schedule: Schedule | None) -> bool:
    return schedule is not None and schedule.cta_group == PAIR


def row_indices(kernel: Kernel) -> list[Value]:
    """Of the loops over the output that walk rows: a pair lies along one of them."""
    axes, indices = axes_of(kernel), (loop.index for loop in output_nest(kernel)[0])
    kinds = [(v, v.type) for v in indices]
    return [v for v, kind in kinds if isinstance(kind, Axis) and axes[kind.name].role == "rows"]


def pair_clusters(kernel: Kernel) -> list[dict[str, int]]:
    """Clusters that are a pair, as `Schedule.cluster` has them."""
    return [{loop_variable(index.as_axis.name): PAIR} for index in row_indices(kernel)]


def with_pair(kernel: Kernel, given: Schedule) -> Schedule:
    """With the cluster that is a pair, where one is asked for, and no other."""
    if not in_pairs(given) or given.cluster is not None:
        return given
    return changed(given, cluster=next(iter(pair_clusters(kernel)), {}))


def group_of(kernel: Kernel) -> int:
    """CTAs that an instruction is about."""
    return PAIR if in_pairs(kernel.schedule) else 1


def halved_axes(schedule: Schedule | None, axes: Mapping[str, Axis]) -> dict[str, Axis]:
    """The axes of operands as a CTA's slots have them."""
    if not in_pairs(schedule):
        return dict(axes)
    return {name: _halved(axis) for name, axis in axes.items()}


def _halved(axis: Axis) -> Axis:
    return dataclasses.replace(axis, size=axis.size // PAIR) if axis.role == "columns" else axis


def joint_rings(kernel: Kernel) -> frozenset[Value]:
    """Those that the multiplying thread reads or fills, in both CTAs."""
    if not in_pairs(kernel.schedule):
        return frozenset()
    sides = [op.body for op in kernel.body if isinstance(op, Partition) and op.role == "mma"]
    taken = (op for side in sides for op in walk(side))
    return frozenset(op.ring for op in taken if isinstance(op, (ConsumerWait, ProducerAcquire)))


# Feasibility rules of CTA pairs.
@once
def why_not_in_pairs(kernel: Kernel) -> Sequence[str]:
    return [*_reasons(kernel)]


def _reasons(kernel: Kernel) -> Iterator[str]:
    if names := copied_operands(kernel):
        yield f"copies of {', '.join(sorted(names))} by threads are not lowered for it yet"
    if summed_parts(kernel):
        yield "a contraction over a part of a dimension is not lowered for it yet"
    groups = [group for group in operand_slots(kernel) if group.consumer == "mma"]
    if any(e.producer not in ("load", "scale") for group in groups for e in group.edges):
        yield "transformed operands are not lowered for it yet"
    body = output_nest(kernel)[1]
    multiplied = {v for op in kernel.of(Contract) for v in (op.a, op.b)}
    for index in row_indices(kernel):
        varies = depending(body, index)
        if loops_depend(body, varies):
            variable = loop_variable(index.as_axis.name)
            yield f"a loop or a condition depends on `{variable}`, which differs in the pair"
        for op in kernel.of(Load):
            own = any(isinstance(v.type, Axis) and v.type.role == "columns" for v in op.index)
            if own and varies & {*op.index} and op.result in multiplied:
                yield different_tiles(op.tensor)


def different_tiles(tensor: Value) -> str:
    return f"its CTAs load half of a tile of `{tensor.name}` each, which must be the same tile"
