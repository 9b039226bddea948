"""What a decode partition does: operands are computed from what slots or tensors have, and fill the
slots of another circular buffer.

    %slot = consumer_wait(ring=%ring)
    %w: i8[n, k] = slot_elements(slot=%slot, field=0, tensor=%W, index=(%n, %k))
    %x: bf16[n, k] = cast(x=%w)
    %made = producer_acquire(ring=%ring_1)
    store_to_slot(slot=%made, field=0, value=%x, summed=%k)
    producer_commit(slot=%made)
    consumer_release(slot=%slot)

It is the backward slice of the kernel's body from these stores, as a load partition is from its
fills.
"""

from __future__ import annotations

from typing import Any

from wsdsl.ir.op import Kernel, Op, Value, operands, results_of
from wsdsl.ir.slot_ops import (
    ConsumerRelease,
    ConsumerWait,
    ProducerAcquire,
    ProducerCommit,
    SlotElements,
    StoreToSlot,
)
from wsdsl.ir.tile_ops import Load
from wsdsl.ir.types import Axis, Slot
from wsdsl.ir.walk import definitions
from wsdsl.lowering.decode import decoded
from wsdsl.lowering.producer_slice import ProducerSlice
from wsdsl.lowering.slots import SlotGroup


class DecodeSlice(ProducerSlice):
    """Of the body that `loads` are cut out of."""

    def __init__(self, loads: ProducerSlice, kernel: Kernel) -> None:
        super().__init__(loads.groups, loads.rings, loads.namer, loads.sizes)
        self.decoded = decoded(kernel)
        axes = (v for v in definitions(kernel) if isinstance(v.type, Axis))
        self.axes = {v.type.name: v for v in axes if isinstance(v.type, Axis)}
        self.slots: dict[int, Value] = {}
        groups = (g for g in loads.groups if g.consumer == "decode")
        self.in_slots = {v for g in groups for edge in g.edges for v in edge.values}

    def _kept(self, op: Op, names: frozenset[str], needed: set[Value]) -> Op | None:
        if isinstance(op, Load) and op.result in self.in_slots:
            return None
        return super()._kept(op, names, needed)

    def _before(self, groups: list[SlotGroup], place: int, names: frozenset[str]) -> list[Op]:
        made: list[Op] = []
        for group in groups:
            if group.consumer == "decode" and group.first == place:
                made += self._taken(group)
        for group in groups:
            if group.producer == "decode" and group.first == place:
                made += self._filled(group)
        for group in groups:
            if group.consumer == "decode" and self._read(group, groups) == place:
                made.append(ConsumerRelease(slot=self._slot(group), loc=group.loc))
        return made

    def _read(self, group: SlotGroup, groups: list[SlotGroup]) -> int:
        """Where all is made that is made of a group's loads."""
        following = {v for edge in group.edges for v in edge.values}
        for op in group.block:
            if following & {*operands(op)}:
                following |= {*results_of(op)}
        decoding = [g for g in groups if g.producer == "decode"]
        return max(g.first for g in decoding if following & {e.value for e in g.edges})

    def _slot(self, group: SlotGroup) -> Value:
        """What the group's slot is called while it is read."""
        place = self.groups.index(group)
        if place not in self.slots:
            self.slots[place] = Value(self.namer.new("slot"), Slot())
        return self.slots[place]

    def _taken(self, group: SlotGroup) -> list[Op]:
        slot, ring = self._slot(group), self.rings[group.ring]
        made: list[Op] = [
            ConsumerWait(result=slot, ring=ring, layout=self.layout(group), loc=group.loc)
        ]
        for field, edge in enumerate(group.edges):
            load = edge.load
            where = dict[str, Any](slot=slot, field=field, tensor=load.tensor, index=load.index)
            made += (SlotElements(result=value, **where, loc=load.loc) for value in edge.values)
        return made

    def _filled(self, group: SlotGroup) -> list[Op]:
        slot, ring = Value(self.namer.new("slot"), Slot()), self.rings[group.ring]
        made: list[Op] = [
            ProducerAcquire(result=slot, ring=ring, layout=self.layout(group), loc=group.loc)
        ]
        for field, edge in enumerate(group.edges):
            where = dict[str, Any](slot=slot, field=field, value=edge.value)
            axis = self.axes[self.decoded.summed[edge.value]]
            made.append(StoreToSlot(**where, summed=axis, loc=group.loc))
        return [*made, ProducerCommit(slot=slot, loc=group.loc)]
