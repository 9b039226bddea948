"""What a kernel's ops say of its circular buffers: which slots are filled and read, and how."""

from __future__ import annotations

from wsdsl.ir import slot_ops as s
from wsdsl.ir.barrier_ops import ForRange
from wsdsl.ir.op import Kernel, Value
from wsdsl.ir.pipeline_ops import AxisAt
from wsdsl.ir.types import State
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.placed_ring import released_unmet


class RingUses:
    """Of a kernel whose slots have states."""

    def __init__(self, kernel: Kernel, builder: Builder) -> None:
        self.kernel, self.builder = kernel, builder
        self.slots = {op.result: op for op in kernel.of(s.ProducerAcquire, s.ConsumerWait)}
        self.placed = self._placed()
        """Ring and state of every slot that may be given back."""
        self.starts = {op.result: op.start for op in kernel.of(AxisAt)}
        self.slot_tiles = {op.result: op for op in kernel.of(s.SlotTile)}
        self.elements = {self.slots[op.slot].ring for op in kernel.of(s.SlotElements)}
        """Rings with operands that threads read, too."""
        self.released_by_threads = set[Value]().union(*map(released_unmet, kernel.body))
        """Of slots that may be released with no product since the wait: nothing then says that all
        threads of a warpgroup have come past it, so each arrives for itself."""
        waits = {op.result for op in kernel.of(s.ConsumerWait)}
        self.changed = {op.slot for op in kernel.of(s.SumToSlot) if op.slot in waits}
        """Slots of sums to which threads write what they have made of these."""
        self.fills: dict[Value, list[s.LoadToSlot]] = {}
        for op in kernel.of(s.LoadToSlot):
            self.fills.setdefault(op.slot, []).append(op)
        self.boxes: dict[tuple[Value, int, int], tuple[int, ...]] = {}
        """By ring, layout and field."""
        for op in kernel.of(s.LoadToSlot):
            held = self.slots[op.slot]
            if op.box:
                self.boxes[held.ring, held.layout, op.field] = op.box
        copied = {self.slot_tiles[op.value].slot for op in kernel.of(s.CopyScales)}
        self.copied = {self.slots[slot].ring for slot in copied}

    def _placed(self) -> dict[Value, tuple[Value, Value]]:
        found: dict[Value, tuple[Value, Value]] = {}
        for op in self.kernel.of(s.ConsumerWait, s.NoSlot, ForRange):
            if not isinstance(op, ForRange):
                if op.state is not None:
                    found[op.result] = op.ring, op.state
                continue
            for first, *others in zip(op.init, op.args, op.result, strict=True):
                for value in others if first in found else ():
                    found[value] = found[first][0], self.builder.value(value.name, State())
        return found
