"""Rules of the level PARTITIONED about slots of circular buffers."""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir import slot_ops as s
from wsdsl.ir.op import Kernel, Op
from wsdsl.ir.pipeline_ops import CircularBuffer
from wsdsl.ir.types import Slot

Problem = tuple[Op | None, str]

OF_PRODUCER = (s.LoadToSlot, s.StoreToSlot, s.ScalesToSlot, s.ProducerCommit)
OF_CONSUMER = (s.SlotTile, s.SlotElements, s.SlotValues, s.ConsumerRelease)
SPACES: dict[type[Op], str] = {s.LoadToSlot: "SMEM", s.SumToSlot: "TMEM"}
EITHER = (s.SumToSlot, s.SlotSum)
"""Products add to the sum in a slot, and threads change it there."""


def slots_are_taken_as_they_are_used(kernel: Kernel) -> Iterator[Problem]:
    """A producer acquires the slots that it fills; a consumer waits for those that it reads."""
    taken = {op.result: op for op in kernel.of(s.ProducerAcquire, s.ConsumerWait)}
    rings = {op.result: op for op in kernel.of(CircularBuffer)}
    for op in taken.values():
        if op.ring not in rings:
            yield op, f"{op.ring} is no circular buffer"
        elif not 0 <= op.layout < len(rings[op.ring].layouts):
            yield op, f"{op.ring} has {len(rings[op.ring].layouts)} layouts, and not {op.layout}"
    for op in kernel.of(*OF_PRODUCER, *OF_CONSUMER, *EITHER):
        source = taken.get(op.slot)
        if not isinstance(op.slot.type, Slot):
            yield op, f"{op.slot} is no slot"
        elif isinstance(op, OF_PRODUCER) and not isinstance(source, s.ProducerAcquire):
            yield op, f"{op.slot} was not acquired"
        elif isinstance(op, OF_CONSUMER) and isinstance(source, s.ProducerAcquire):
            yield op, f"{op.slot} was acquired, and not waited for"
        elif source is not None and source.ring in rings:
            layouts, space = rings[source.ring].layouts, rings[source.ring].space
            if space != SPACES.get(type(op), space):
                yield op, f"{source.ring} lies in {space}"
            field, fields = getattr(op, "field", 0), layouts[source.layout : source.layout + 1]
            if fields and not 0 <= field < len(fields[0]):
                yield op, f"a slot of {source.ring} has {len(fields[0])} fields, and not {field}"
