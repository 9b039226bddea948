"""What the thread that multiplies does of a kernel's body, and what is left to compute, where sums
cross between them in slots of tensor memory.

Before:
    %acc = for_tiles(index=%k, init=(%zeros,), ...) { ... contract ... }
    store(tensor=%C, index=(%m, %n), value=%acc)
After, of the partition "mma":
    %slot = producer_acquire(ring=%sum_ring)
    %acc = for_tiles(index=%k, init=(%zeros,), ...) { ... contract ... }
    sum_to_slot(slot=%slot, field=0, value=%acc)
    producer_commit(slot=%slot)
and of the partition "compute":
    %slot_1 = consumer_wait(ring=%sum_ring)
    %acc: f32[m, n] = slot_sum(slot=%slot_1, field=0, started=%any)
    store(tensor=%C, index=(%m, %n), value=%acc)
    consumer_release(slot=%slot_1)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wsdsl.ir.op import Op, Region, Value, results_of
from wsdsl.ir.slot_ops import (
    ConsumerRelease,
    ConsumerWait,
    ProducerAcquire,
    ProducerCommit,
    SlotSum,
    SlotTile,
    SumToSlot,
)
from wsdsl.ir.tile_ops import Constant, DimSize, ForTiles, Map, Store
from wsdsl.ir.types import BOOL, I32, Slot, Tile
from wsdsl.ir.walk import Namer, walk
from wsdsl.lowering.passes.drop_unused import without_unused
from wsdsl.lowering.slots import SlotGroup
from wsdsl.lowering.tensor_sums import multiplies

OF_OPERANDS = (ConsumerWait, ConsumerRelease, SlotTile)


def product_slice(body: Region, sums: SlotGroup, ring: Value, namer: Namer) -> Region:
    """Of a body whose loads are slots that were waited for."""
    slot = Value(namer.new("slot"), Slot())
    made = list[Op]()
    left = sum(map(multiplies, body))
    for op in body:
        if not multiplies(op):
            made += [] if _stores(op) else [op]
            continue
        if not any(isinstance(o, ProducerAcquire) for o in made):
            made.append(ProducerAcquire(result=slot, ring=ring, loc=sums.loc))
        made.append(op)
        left -= 1
        if not left:
            fields = enumerate(sums.edges)
            made += (SumToSlot(slot=slot, field=n, value=e.values[0]) for n, e in fields)
            made.append(ProducerCommit(slot=slot, loc=op.loc))
    return without_unused(tuple(made))


def compute_slice(
    body: Region, sums: SlotGroup, ring: Value, namer: Namer, sizes: Mapping[str, int]
) -> Region:
    """The rest of it."""
    slot = Value(namer.new("slot"), Slot())
    fields = {edge.values[0]: n for n, edge in enumerate(sums.edges)}
    made = list[Op]()
    for op in body:
        if isinstance(op, OF_OPERANDS):
            continue
        if not multiplies(op):
            made.append(op)
            continue
        if not any(isinstance(o, ConsumerWait) for o in made):
            made.append(ConsumerWait(result=slot, ring=ring, loc=sums.loc))
        started = _started(op, made, namer, sizes) if isinstance(op, ForTiles) else None
        for value in results_of(op):
            where = dict[str, Any](slot=slot, field=fields[value], loc=op.loc)
            made.append(SlotSum(result=value, started=started, **where))
    made.append(ConsumerRelease(slot=slot, loc=sums.loc))
    return without_unused(tuple(made))


def _started(op: ForTiles, made: list[Op], namer: Namer, sizes: Mapping[str, int]) -> Value:
    """Whether the loop has an iteration; its ops are added to `made`."""
    start, stop = op.start, op.stop
    if stop is None:
        stop = Value(namer.new(f"size_{op.dim}"), Tile(I32))
        known = op.dim in sizes
        size = (
            Constant(result=stop, value=sizes[op.dim])
            if known
            else DimSize(result=stop, dim=op.dim)
        )
        made.append(size)
    if start is None:
        start = Value(namer.new("c0"), Tile(I32))
        made.append(Constant(result=start, value=0))
    started = Value(namer.new("any"), Tile(BOOL))
    made.append(Map(result=started, fn="gt", args=(stop, start), loc=op.loc))
    return started


def _stores(op: Op) -> bool:
    return any(isinstance(inner, Store) for inner in walk((op,)))
