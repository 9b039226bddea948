"""What lies in a slot that has its place: in SMEM, or in tensor memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from wsdsl.ir.op import Op
from wsdsl.ir.slot_ops import (
    ConsumerWait,
    ElementsInShared,
    ProducerAcquire,
    SlotElements,
    SlotSum,
    SlotTile,
    SlotValues,
    StoreInShared,
    StoreInTensor,
    StoreToSlot,
    SumInTensor,
    SumToSlot,
    SumToTensor,
    TileInShared,
    TileInTensor,
    ValuesInShared,
)
from wsdsl.ir.types import Columns
from wsdsl.lowering.placed_ring import PlacedRing

Located = SlotTile | SlotElements | SlotValues | StoreToSlot | SlotSum | SumToSlot


def located(
    op: Located,
    slot: ProducerAcquire | ConsumerWait,
    ring: PlacedRing,
    box: tuple[int, ...],
    swizzle: Callable[[], str],
) -> Op:
    """`box`: of what lies beside operands; `swizzle`: the mode of what is stored."""
    offset = ring.offsets[slot.layout][op.field]
    place = dict[str, Any](state=slot.state, loc=op.loc)
    where = dict[str, Any](shared=ring.shared, offset=offset, **place)
    match op:
        case SlotTile() if isinstance(ring.shared.type, Columns):
            place |= dict(columns=ring.shared, column=offset)
            return TileInTensor(result=op.result, **place)
        case SlotTile():
            return TileInShared(result=op.result, **where)
        case SlotElements(result=result, tensor=tensor):
            return ElementsInShared(result=result, tensor=tensor, index=op.index, **where)
        case SlotValues(result=result, every=every, stride=stride):
            where |= dict(bytes=math.prod(box) * result.as_tile.dtype.bytes, last=op.last)
            return ValuesInShared(result=result, every=every, stride=stride, **where)
        case StoreToSlot(value=value, summed=summed) if isinstance(ring.shared.type, Columns):
            place |= dict(columns=ring.shared, column=offset)
            return StoreInTensor(value=value, summed=summed, **place)
        case StoreToSlot(value=value, summed=summed):
            return StoreInShared(value=value, summed=summed, swizzle=swizzle(), **where)
        case SumToSlot():
            return SumToTensor(value=op.value, sums=ring.shared, column=offset, **place)
        case SlotSum(result=result, started=started):
            place |= dict(sums=ring.shared, column=offset)
            return SumInTensor(result=result, started=started, **place)
