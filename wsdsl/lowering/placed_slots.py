"""What lies in a slot that has its place: in SMEM, or in tensor memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from wsdsl.ir import slot_ops as s
from wsdsl.ir.op import Op
from wsdsl.ir.types import Columns
from wsdsl.lowering.placed_ring import PlacedRing

Located = s.SlotTile | s.SlotElements | s.SlotValues | s.StoreToSlot | s.SlotSum | s.SumToSlot


def located(
    op: Located,
    slot: s.ProducerAcquire | s.ConsumerWait,
    ring: PlacedRing,
    box: tuple[int, ...],
    swizzle: Callable[[], str],
) -> Op:
    """`box`: of what lies beside operands; `swizzle`: the mode of what is stored."""
    offset = ring.offsets[slot.layout][op.field]
    place = dict[str, Any](state=slot.state, loc=op.loc)
    where = dict[str, Any](shared=ring.shared, offset=offset, **place)
    match op:
        case s.SlotTile() if isinstance(ring.shared.type, Columns):
            place |= dict(columns=ring.shared, column=offset)
            return s.TileInTensor(result=op.result, **place)
        case s.SlotTile():
            return s.TileInShared(result=op.result, **where)
        case s.SlotElements(result=result, tensor=tensor):
            return s.ElementsInShared(result=result, tensor=tensor, index=op.index, **where)
        case s.SlotValues(result=result, every=every, stride=stride):
            where |= dict(bytes=math.prod(box) * result.as_tile.dtype.bytes, last=op.last)
            return s.ValuesInShared(result=result, every=every, stride=stride, **where)
        case s.StoreToSlot(value=value, summed=summed) if isinstance(ring.shared.type, Columns):
            place |= dict(columns=ring.shared, column=offset)
            return s.StoreInTensor(value=value, summed=summed, **place)
        case s.StoreToSlot(value=value, summed=summed):
            return s.StoreInShared(value=value, summed=summed, swizzle=swizzle(), **where)
        case s.SumToSlot():
            return s.SumToTensor(value=op.value, sums=ring.shared, column=offset, **place)
        case s.SlotSum(result=result, started=started):
            place |= dict(sums=ring.shared, column=offset)
            return s.SumInTensor(result=result, started=started, **place)
