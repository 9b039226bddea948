"""Assign ops to partitions, and list the edges between partitions (TILE).

    %a: load -> mma; SMEM f16[m, k]; k, pipeline 0 (stages)
    %acc: mma -> store; registers f32[m, n]; k -> tile

Both are computed once, from the TILE kernel. Values in SMEM have a pipeline stage, for any producer
(`buffer_assignment` decides which values share one). On sm_90a the same warpgroups run all roles
except `load` and `decode`, and values between these stay in registers; with TMEM, one thread issues
MMAs, and their inputs and results are there. Indices and other scalars do not cross: each partition
computes the scalars that it needs.
"""

from collections.abc import Iterable, Iterator, Mapping

from wsdsl.ir.op import Kernel, Makers, Op, Value, once, operands, regions, results_of
from wsdsl.ir.ops import Contract, DimLoop, ForEach, ForTiles, Full, If, Store, Yield
from wsdsl.ir.rewriter import yielded
from wsdsl.lowering.axes import output_nest, with_loops
from wsdsl.lowering.buffer_assignment import SlotGroup, operand_slots
from wsdsl.lowering.decode import decoded
from wsdsl.lowering.edge import ROLES, Edge, Role
from wsdsl.lowering.epilogue_operands import epilogue_slots
from wsdsl.reachability import reached
from wsdsl.schedule import Schedule


@once
def assign_partitions(kernel: Kernel) -> Mapping[Op, Role]:
    """For every op but loops and conditions, which several partitions walk. An epilogue is
    `compute`'s, and so are loads without a pipeline.
    """
    crossing = [edge for group in _slots(kernel) for edge in group.edges]
    loaded = {v for edge in crossing if edge.producer == "load" for v in edge.values}
    scales = {v for edge in crossing if edge.box for v in edge.values}
    inside = decoded(kernel).inside

    def role(op: Op) -> Role:
        values = {*results_of(op)}
        if isinstance(op, Contract):
            return "mma"
        if isinstance(op, Store):
            return "store"
        if values & loaded:
            return "load"
        if values & inside:
            return "decode"
        return "scale" if scales & {*operands(op)} else "compute"

    return {op: role(op) for op in kernel.ops if not regions(op) and not isinstance(op, Yield)}


@once
def edges(kernel: Kernel) -> tuple[Edge, ...]:
    """Return all edges, those through stages first."""
    through = (edge for group in _slots(kernel) for edge in group.edges)
    return (*through, *_without_slots(kernel))


def _slots(kernel: Kernel) -> tuple[SlotGroup, ...]:
    schedule = kernel.schedule or Schedule()
    return (*operand_slots(kernel), *epilogue_slots(kernel, schedule))


def _without_slots(kernel: Kernel) -> Iterator[Edge]:
    """Yield edges without a pipeline. Neither constants nor scalars cross."""
    roles, made = assign_partitions(kernel), kernel.definers
    around = {op: at[-1].index if at else None for op, at in with_loops(output_nest(kernel)[1])}
    readers = dict[Value, dict[Role, Op]]()
    made_in_slots = {edge.value for group in _slots(kernel) for edge in group.edges}
    for op, role in roles.items():
        for value in _sources([v for v in operands(op) if v.is_tile], made):
            producer = roles.get(made[value], role)
            by_slot = {"load", "decode"} & {producer, role} or value in made_in_slots
            if producer != role and not by_slot and not isinstance(made[value], Full):
                readers.setdefault(value, {}).setdefault(role, op)
    for value, by in readers.items():
        consumers = tuple(sorted(by, key=ROLES.index))
        read_in = around[by[consumers[0]]]
        op = made[value]
        by_mma = kernel.target.has_tensor_memory and "mma" in (roles[op], *consumers)
        space = "TMEM" if by_mma else "registers"
        yield Edge((value,), op, roles[op], consumers, value.as_tile, around[op], read_in, space)


def _sources(values: Iterable[Value], made: Makers) -> Iterator[Value]:
    """Yield the values that loops and conditions forward."""

    def after(value: Value) -> list[Value]:
        match made[value]:
            case DimLoop() as loop:
                n = (loop.args if value in loop.args else loop.result).index(value)
                return [loop.init[n], yielded(loop.body)[n]]
            case If() as op:
                n = op.result.index(value)
                return [yielded(op.then)[n], yielded(op.orelse)[n]]
            case _:
                return []

    return (v for v in reached(values, after) if not isinstance(made[v], (ForTiles, ForEach, If)))
