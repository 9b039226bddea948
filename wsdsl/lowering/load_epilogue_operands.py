"""The two sides of tiles that come in parts (`parts`): a ring, who fills it, and who reads it."""

from __future__ import annotations

from wsdsl.ir.op import Kernel, Op, Region, Value, regions, results_of
from wsdsl.ir.pipeline_ops import CircularBuffer
from wsdsl.ir.slot_ops import LoadToSlot, ProducerAcquire, ProducerCommit, TakeSubtiles
from wsdsl.ir.tile_ops import Load
from wsdsl.ir.types import Ring, Slot, Tile
from wsdsl.ir.walk import Namer
from wsdsl.lowering.cooperation import num_cooperating
from wsdsl.lowering.epilogue_operands import subtile_widths
from wsdsl.lowering.footprint import axis_sizes, is_heavy, part_depth


def epilogue_ring(kernel: Kernel, loads: tuple[Load, ...], namer: Namer) -> CircularBuffer:
    assert kernel.schedule is not None
    sizes = axis_sizes(kernel, kernel.schedule)
    return CircularBuffer(
        result=Value(namer.new("part_ring"), Ring()),
        depth=part_depth(kernel, kernel.schedule),
        layouts=(tuple(op.result.type for op in loads if isinstance(op.result.type, Tile)),),
        consumers=num_cooperating(kernel.schedule),
        parts=subtile_widths(kernel, loads, sizes, is_heavy(kernel, kernel.schedule)),
        loc=loads[0].loc,
    )


def fill_subtiles(body: Region, loads: tuple[Load, ...], ring: Value, namer: Namer) -> Region:
    """A load side of its own, with all that addresses may need: it never waits for the products'
    slots, nor they for its.
    """
    slot = Value(namer.new("slot"), Slot())
    made: list[Op] = [op for op in body if results_of(op) and not regions(op)]
    made.append(ProducerAcquire(result=slot, ring=ring, loc=loads[0].loc))
    for field, load in enumerate(loads):
        fill = LoadToSlot(
            slot=slot, field=field, tensor=load.tensor, index=load.index, loc=load.loc
        )
        made.append(fill)
    return (*made, ProducerCommit(slot=slot, loc=loads[0].loc))


def read_in_subtiles(
    body: Region, loads: tuple[Load, ...], ring: Value, pingpong_index: int, num_pingpong: int
) -> Region:
    """The block with these loads replaced by parts that are waited for."""
    made: list[Op] = []
    for op in body:
        if op not in loads:
            made.append(op)
        elif op == loads[0]:
            results = tuple(load.result for load in loads)
            take = TakeSubtiles(
                result=results,
                ring=ring,
                pingpong_index=pingpong_index,
                num_pingpong=num_pingpong,
                loc=op.loc,
            )
            made.append(take)
    return tuple(made)
