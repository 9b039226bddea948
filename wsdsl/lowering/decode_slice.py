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
from wsdsl.ir.types import Axis
from wsdsl.ir.walk import Namer, definitions
from wsdsl.lowering.decode import decoded
from wsdsl.lowering.producer_slice import ProducerSlice
from wsdsl.lowering.slots import SlotGroup


class DecodeSlice(ProducerSlice):
    """Of the body that `loads` are cut out of."""

    def __init__(
        self, kernel: Kernel, groups: tuple[SlotGroup, ...], rings: dict[int, Value], namer: Namer
    ) -> None:
        super().__init__(kernel, groups, rings, namer)
        axes = (v for v in definitions(kernel) if isinstance(v.type, Axis))
        self.axes = {v.type.name: v for v in axes if isinstance(v.type, Axis)}
        read = [g for g in groups if g.consumer == "decode"]
        self.waits = {g: ConsumerWait(**self.taken(g)) for g in read}
        self.in_slots = {v for g in read for edge in g.edges for v in edge.values}

    def _kept(self, op: Op, names: frozenset[str], needed: set[Value]) -> Op | None:
        if isinstance(op, Load) and op.result in self.in_slots:
            return None
        return super()._kept(op, names, needed)

    def _before(self, groups: list[SlotGroup], place: int, names: frozenset[str]) -> list[Op]:
        first = [g for g in groups if g.first == place]
        taken = [op for g in first if g in self.waits for op in self._taken(g)]
        filled = [op for g in first if g.producer == "decode" for op in self._filled(g)]
        read = [g for g in groups if g in self.waits and self._read(g, groups) == place]
        released = [ConsumerRelease(slot=self.waits[g].result, loc=g.loc) for g in read]
        return [*taken, *filled, *released]

    def _read(self, group: SlotGroup, groups: list[SlotGroup]) -> int:
        """Where all is made that is made of a group's loads."""
        following = {v for edge in group.edges for v in edge.values}
        for op in group.block:
            if following & {*operands(op)}:
                following |= {*results_of(op)}
        decoding = [g for g in groups if g.producer == "decode"]
        return max(g.first for g in decoding if following & {e.value for e in g.edges})

    def _taken(self, group: SlotGroup) -> list[Op]:
        wait = self.waits[group]
        made: list[Op] = [wait]
        for field, edge in enumerate(group.edges):
            load = edge.load
            where = dict[str, Any](
                slot=wait.result, field=field, tensor=load.tensor, index=load.index
            )
            made += (SlotElements(result=value, **where, loc=load.loc) for value in edge.values)
        return made

    def _filled(self, group: SlotGroup) -> list[Op]:
        acquire = ProducerAcquire(**self.taken(group))
        slot, made = acquire.result, list[Op]([acquire])
        for field, edge in enumerate(group.edges):
            where = dict[str, Any](slot=slot, field=field, value=edge.value)
            axis = self.axes[decoded(self.kernel).summed[edge.value]]
            made.append(StoreToSlot(**where, summed=axis, loc=group.loc))
        return [*made, ProducerCommit(slot=slot, loc=group.loc)]
