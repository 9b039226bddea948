"""What a kernel's ops say of its circular buffers: which slots are filled and read, and how."""

import math
from collections.abc import Callable
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Value
from wsdsl.ir.types import Columns, State
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.placed_ring import PlacedRing, released_unmet


class RingUses:
    """Of a kernel whose slots have states."""

    def __init__(self, kernel: Kernel, builder: Builder) -> None:
        self.kernel, self.builder = kernel, builder
        self.slots = {op.result: op for op in kernel.of(ops.ProducerAcquire, ops.ConsumerWait)}
        self.placed = self._placed()
        """Ring and state of every slot that may be given back."""
        self.starts = {op.result: op.start for op in kernel.of(ops.AxisAt)}
        self.slot_tiles = {op.result: op for op in kernel.of(ops.SlotTile)}
        self.elements = {self.slots[op.slot].ring for op in kernel.of(ops.SlotElements)}
        """Rings with operands that threads read, too."""
        self.released_by_threads = set[Value]().union(*map(released_unmet, kernel.body))
        """Of slots that may be released with no product since the wait: nothing then says that all
        threads of a warpgroup have come past it, so each arrives for itself."""
        waits = {op.result for op in kernel.of(ops.ConsumerWait)}
        self.changed = {op.slot for op in kernel.of(ops.SumToSlot) if op.slot in waits}
        """Slots of sums to which threads write what they have made of these."""
        self.fills: dict[Value, list[ops.LoadToSlot]] = {}
        for op in kernel.of(ops.LoadToSlot):
            self.fills.setdefault(op.slot, []).append(op)
        self.boxes: dict[tuple[Value, int, int], tuple[int, ...]] = {}
        """By ring, layout and field."""
        for op in kernel.of(ops.LoadToSlot):
            held = self.slots[op.slot]
            if op.box:
                self.boxes[held.ring, held.layout, op.field] = op.box
        copied = {self.slot_tiles[op.value].slot for op in kernel.of(ops.CopyScales)}
        self.copied = {self.slots[slot].ring for slot in copied}

    def _placed(self) -> dict[Value, tuple[Value, Value]]:
        found: dict[Value, tuple[Value, Value]] = {}
        for op in self.kernel.of(ops.ConsumerWait, ops.NoSlot, ops.ForRange):
            if not isinstance(op, ops.ForRange):
                if op.state is not None:
                    found[op.result] = op.ring, op.state
                continue
            for first, *others in zip(op.init, op.args, op.result, strict=True):
                for value in others if first in found else ():
                    found[value] = found[first][0], self.builder.value(value.name, State())
        return found


def located(
    op: ops.InField,
    slot: ops.ProducerAcquire | ops.ConsumerWait,
    ring: PlacedRing,
    box: tuple[int, ...],
    swizzle: Callable[[], str],
) -> Op:
    """`box`: of what lies beside operands; `swizzle`: the mode of what is stored."""
    offset = ring.offsets[slot.layout][op.field]
    place = dict[str, Any](state=slot.state, loc=op.loc)
    where = dict[str, Any](shared=ring.shared, offset=offset, **place)
    match op:
        case ops.SlotTile() if isinstance(ring.shared.type, Columns):
            place |= dict(columns=ring.shared, column=offset)
            return ops.TileInTensor(result=op.result, **place)
        case ops.SlotTile():
            return ops.TileInShared(result=op.result, **where)
        case ops.SlotElements(result=result, tensor=tensor):
            return ops.ElementsInShared(result=result, tensor=tensor, index=op.index, **where)
        case ops.SlotValues(result=result, every=every, stride=stride):
            where |= dict(bytes=math.prod(box) * result.as_tile.dtype.bytes, last=op.last)
            return ops.ValuesInShared(result=result, every=every, stride=stride, **where)
        case ops.StoreToSlot(value=value, summed=summed) if isinstance(ring.shared.type, Columns):
            place |= dict(columns=ring.shared, column=offset)
            return ops.StoreInTensor(value=value, summed=summed, **place)
        case ops.StoreToSlot(value=value, summed=summed):
            return ops.StoreInShared(value=value, summed=summed, swizzle=swizzle(), **where)
        case ops.SumToSlot():
            return ops.SumToTensor(value=op.value, sums=ring.shared, column=offset, **place)
        case ops.SlotSum(result=result, started=started):
            place |= dict(sums=ring.shared, column=offset)
            return ops.SumInTensor(result=result, started=started, **place)
        case _:
            raise TypeError(f"{type(op).__name__} has no place in SMEM or TMEM")
