"""Rules of the level PARTITIONED about pipeline stages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Problem, Region, Value
from wsdsl.ir.ops import Contract, Loop, Partition, Pipeline
from wsdsl.ir.rewriter import walk, yielded
from wsdsl.ir.types import Axis, Slot, Tile

Sum = TypeVar("Sum", ops.SumToSlot, ops.SumToTensor)

OF_PRODUCER = (ops.LoadToSlot, ops.StoreToSlot, ops.ScalesToSlot, ops.ProducerCommit)
OF_CONSUMER = (ops.SlotTile, ops.SlotElements, ops.SlotValues, ops.ConsumerRelease)
SPACES: dict[type[Op], str] = {ops.LoadToSlot: "SMEM", ops.SumToSlot: "TMEM"}
EITHER = (ops.SumToSlot, ops.SlotSum)
"""MMAs add to the accumulator in a stage, and threads change it there."""


def slots_are_taken_as_they_are_used(kernel: Kernel) -> Iterator[Problem]:
    """A producer acquires the stages that it fills; a consumer waits for those that it reads."""
    taken = {op.result: op for op in kernel.of(ops.ProducerAcquire, ops.ConsumerWait)}
    rings = {op.result: op for op in kernel.of(Pipeline)}
    for op in taken.values():
        if op.ring not in rings:
            yield op, f"{op.ring} is not a pipeline"
        elif not 0 <= op.layout < len(rings[op.ring].layouts):
            yield op, f"layout={op.layout}: {op.ring} has {len(rings[op.ring].layouts)} layouts"
    for op in kernel.of(*OF_PRODUCER, *OF_CONSUMER, *EITHER):
        source = taken.get(op.slot)
        if not isinstance(op.slot.type, Slot):
            yield op, f"{op.slot} is not a pipeline stage"
        elif isinstance(op, OF_PRODUCER) and not isinstance(source, ops.ProducerAcquire):
            yield op, f"stage {op.slot} was not acquired"
        elif isinstance(op, OF_CONSUMER) and isinstance(source, ops.ProducerAcquire):
            yield op, f"stage {op.slot} was acquired, not waited for"
        elif source is not None and source.ring in rings:
            layouts, space = rings[source.ring].layouts, rings[source.ring].space
            if space != SPACES.get(type(op), space):
                yield op, f"pipeline {source.ring} is in {space}"
            field, fields = getattr(op, "field", 0), layouts[source.layout : source.layout + 1]
            if fields and not 0 <= field < len(fields[0]):
                yield op, f"field={field}: a stage of {source.ring} has {len(fields[0])} fields"
            elif fields and isinstance(op, (ops.SlotTile, ops.SlotElements, ops.StoreToSlot)):
                value = op.value if isinstance(op, ops.StoreToSlot) else op.result
                yield from _of_slot(kernel, op, value, fields[0][field])
    for op in kernel.of(ops.TakeSubtiles):
        for layout in rings[op.ring].layouts[:1] if op.ring in rings else ():
            for value, tile in zip(op.result, layout, strict=False):
                yield from _of_slot(kernel, op, value, tile)
    in_tensor = any(ring.space == "TMEM" for ring in rings.values())
    for own in (op for op in kernel.of(Partition) if op.role == "mma" and in_tensor):
        places = sum_places(own.body, ops.SumToSlot)
        for op in walk(own.body):
            if isinstance(op, Contract) and op.result not in places:
                yield op, f"no op names the pipeline stage of the accumulator {op.result}"


def _of_slot(kernel: Kernel, op: Op, value: Value, tile: Tile) -> Iterator[Problem]:
    """The axes of a decode partition have other names."""
    dims = {v.type.name: v.type.dim for v in kernel.defined if isinstance(v.type, Axis)}
    kinds = (value.type, tile)
    own, there = (sorted(dims.get(x, "") for x in getattr(kind, "axes", ())) for kind in kinds)
    if own != there:
        yield op, f"{value} is {value.type}; the stage has {tile}"


def sum_places(body: Region, kind: type[Sum]) -> dict[Value, Sum]:
    """Where sums lie: accumulators and what a loop carries lie where the result does."""
    places = {op.value: op for op in walk(body) if isinstance(op, kind)}
    pairs = list[tuple[Value, Value]]()
    for op in walk(body):
        if isinstance(op, Loop):
            for *held, made in zip(op.init, op.args, yielded(op.body), op.result, strict=False):
                pairs += [(made, value) for value in held]
        elif isinstance(op, Contract) and op.acc is not None:
            pairs.append((op.result, op.acc))
    num = -1
    while num < len(places):
        num = len(places)
        places |= {value: places[made] for made, value in pairs if made in places}
    return places
