"""What a kernel's ops say of its circular buffers: which slots are filled and read, and how."""

from __future__ import annotations

from wsdsl.ir.barrier_ops import ForRange
from wsdsl.ir.op import Kernel, Value
from wsdsl.ir.pipeline_ops import AxisAt
from wsdsl.ir.slot_ops import (
    BlocksToSlot,
    ConsumerWait,
    CopyScales,
    LoadToSlot,
    NoSlot,
    ProducerAcquire,
    SlotElements,
    SlotTile,
    SumToSlot,
)
from wsdsl.ir.types import State
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.placed_ring import released_unmet


class RingUses:
    """Of a kernel whose slots have states."""

    def __init__(self, kernel: Kernel, builder: Builder) -> None:
        self.kernel, self.builder = kernel, builder
        self.slots: dict[Value, ProducerAcquire | ConsumerWait] = {}
        self.placed: dict[Value, tuple[Value, Value]] = {}
        """Ring and state of every slot that may be given back."""
        self.starts: dict[Value, Value] = {}
        self.fills: dict[Value, list[LoadToSlot]] = {}
        self.slot_tiles: dict[Value, SlotTile] = {}
        self.boxes: dict[tuple[Value, int, int], tuple[int, ...]] = {}
        """By ring, layout and field."""
        self.elements: set[Value] = set()
        """Rings with operands that threads read, too."""
        self.released_by_threads = set[Value]().union(*map(released_unmet, kernel.body))
        """Of slots that may be released with no product since the wait: nothing then says that all
        threads of a warpgroup have come past it, so each arrives for itself."""
        self.changed = set[Value]()
        """Slots of sums to which threads write what they have made of these."""
        waits = {op.result for op in kernel.of(ConsumerWait)}
        for op in kernel.ops:
            if isinstance(op, SumToSlot) and op.slot in waits:
                self.changed.add(op.slot)
            if isinstance(op, (ProducerAcquire, ConsumerWait)):
                self.slots[op.result] = op
            if isinstance(op, (ConsumerWait, NoSlot)) and op.state is not None:
                self.placed[op.result] = op.ring, op.state
            elif isinstance(op, ForRange):
                for first, *others in zip(op.init, op.args, op.result, strict=True):
                    for value in others if first in self.placed else ():
                        own = self.builder.value(value.name, State())
                        self.placed[value] = self.placed[first][0], own
            elif isinstance(op, (BlocksToSlot, LoadToSlot)):
                if isinstance(op, LoadToSlot):
                    self.fills.setdefault(op.slot, []).append(op)
                held = self.slots[op.slot]
                if op.box:
                    self.boxes[held.ring, held.layout, op.field] = op.box
            elif isinstance(op, SlotElements):
                self.elements.add(self.slots[op.slot].ring)
            elif isinstance(op, AxisAt):
                self.starts[op.result] = op.start
            elif isinstance(op, SlotTile):
                self.slot_tiles[op.result] = op
        copied = {self.slot_tiles[op.value].slot for op in kernel.of(CopyScales)}
        self.copied = {self.slots[slot].ring for slot in copied}
