"""What a compute partition does: products and threads read the tiles of slots that were waited for.

    %slot = consumer_wait(ring=%ring)
    %a = slot_tile(slot=%slot, field=0)
    %b = slot_tile(slot=%slot, field=1)
    %y = contract(a=%a, b=%b, acc=%x)
    consumer_release(slot=%slot)

It is the kernel's body without what other partitions do. Operands that threads read too they are
given in the slot (`slot_elements`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from wsdsl.ir.op import Op, Region, Value
from wsdsl.ir.slot_ops import (
    ConsumerRelease,
    ConsumerWait,
    SlotElements,
    SlotTile,
    SlotValues,
    TakeSubtiles,
)
from wsdsl.ir.tile_ops import Contract
from wsdsl.ir.types import SharedTile
from wsdsl.ir.walk import definers, replace_operands, with_regions
from wsdsl.lowering.edge import Edge
from wsdsl.lowering.producer_slice import ProducerSlice
from wsdsl.lowering.slots import SlotGroup


class ConsumerSlice:
    """Of the body that `loads` are cut out of, in one of `num_pingpong` partitions in ping-pong.
    What comes `in_parts` is read in an epilogue.
    """

    def __init__(
        self,
        loads: ProducerSlice,
        in_parts: tuple[SlotGroup, ...],
        pingpong_index: int,
        num_pingpong: int,
    ) -> None:
        self.loads = loads
        self.takes = dict[Op, TakeSubtiles | None]()
        """In place of loads: the first of a group takes all of its tiles."""
        for group in in_parts:
            first, *others = group.loads
            take = TakeSubtiles(
                result=tuple(load.result for load in group.loads),
                ring=loads.rings[group.ring],
                pingpong_index=pingpong_index,
                num_pingpong=num_pingpong,
                loc=first.loc,
            )
            self.takes |= {first: take, **dict.fromkeys(others)}

    def of(self, block: Region) -> Region:
        """The block with loads replaced by slots that are waited for."""
        groups = [g for g in self.loads.of_block(block) if g.consumer != "decode"]
        beside = [edge.made for group in groups for edge in group.edges if edge.box]
        made: list[Op] = []
        tiles, elements = dict[Value, Value](), dict[Value, Value]()
        slots: dict[int, Value] = {}
        for i, op in enumerate(block):
            for n, group in enumerate(groups):
                if group.held.start == i:
                    wait = ConsumerWait(**self.loads.taken(group))
                    slots[n] = wait.result
                    made += [wait, *self._read(group, slots[n], tiles, elements)]
            if op in self.takes:
                made += [take] if (take := self.takes[op]) else []
            elif op not in beside:
                inner = with_regions(op, self.of)
                made.append(replace_operands(_read_from_slots(inner, tiles), elements))
            for n, group in enumerate(groups):
                if group.held[-1] == i:
                    made.append(ConsumerRelease(slot=slots[n], loc=op.loc))
        return tuple(made)

    def _read(
        self,
        group: SlotGroup,
        slot: Value,
        tiles: dict[Value, Value],
        elements: dict[Value, Value],
    ) -> list[Op]:
        """`tiles` are what products read, `elements` what threads do."""
        new, made = self.loads.namer.new, list[Op]()
        for field, edge in enumerate(group.edges):
            where = dict[str, Any](slot=slot, field=field, loc=edge.made.loc)
            if edge.box:
                made += self._values(group, edge, where)
            if "mma" in edge.consumers:
                kind = SharedTile(edge.layout.dtype, edge.layout.axes)
                tile = Value(new(edge.name.lower()), kind)
                made.append(SlotTile(result=tile, **where))
                tiles |= dict.fromkeys(edge.values, tile)
            if "compute" in edge.consumers:
                read, load = Value(new(edge.name.lower()), edge.value.type), edge.load
                read_from = dict[str, Any](tensor=load.tensor, index=load.index)
                made.append(SlotElements(result=read, **where, **read_from))
                elements |= dict.fromkeys(edge.values, read)
        return made

    def _values(self, group: SlotGroup, edge: Edge, where: Mapping[str, Any]) -> list[Op]:
        """What lies beside operands."""
        box, made, last = edge.box, list[Op](), None
        assert box is not None
        if box.is_rounded:
            made, index = self.loads.blocks(box, definers(group.block[group.first :]))
            last = index[-1]
        stride, every = box.stride(self.loads.sizes), box.axis[1]
        read = SlotValues(result=edge.value, every=every, stride=stride, last=last, **where)
        return [*made, read]


def _read_from_slots(op: Op, tiles: dict[Value, Value]) -> Op:
    """Products read their operands from slots."""
    if isinstance(op, Contract):
        return dataclasses.replace(op, a=tiles.get(op.a, op.a), b=tiles.get(op.b, op.b))
    return with_regions(op, lambda region: tuple(_read_from_slots(i, tiles) for i in region))
