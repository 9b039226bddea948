"""What a load partition does: slots are filled, and their addresses computed.

It is the backward slice of the kernel's body from the fills: of loops and conditions around them is
kept what they decide, and of what these carry only what that depends on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from wsdsl.diagnostics import CompileError, Finding
from wsdsl.ir.op import Kernel, Op, Region, Value, operands, results_of
from wsdsl.ir.slot_ops import LoadToSlot, ProducerAcquire, ProducerCommit, SkipSlot
from wsdsl.ir.tile_ops import Block, Constant, Contract, ForEach, ForTiles, If, Reduce, Yield
from wsdsl.ir.types import Slot
from wsdsl.ir.walk import Namer, definers, used_inside, uses, walk, yielded
from wsdsl.lowering.axes import axes_of
from wsdsl.lowering.builder import INT
from wsdsl.lowering.early_loads import loaded_tensors
from wsdsl.lowering.scale_loads import ScaleLoad
from wsdsl.lowering.slots import SlotGroup, layouts_of


class ProducerSlice:
    """Of one kernel body, whose loads go to the slots of `rings`."""

    def __init__(
        self,
        kernel: Kernel,
        groups: tuple[SlotGroup, ...],
        rings: Mapping[int, Value],
        namer: Namer,
    ) -> None:
        assert kernel.plan is not None
        self.kernel, self.groups, self.rings, self.namer = kernel, groups, rings, namer
        self.orders = {ring.number: ring.orders for ring in kernel.plan.rings}
        self.sizes = {name: axis.size for name, axis in axes_of(kernel).items()}
        self.layouts = layouts_of(groups)

    def of_block(self, block: Region) -> list[SlotGroup]:
        return [g for g in self.groups if g.block is block or g.block == block]

    def of(
        self, block: Region, names: frozenset[str] = frozenset(), handed: tuple[Value, ...] = ()
    ) -> Region:
        """The block with nothing but slots being filled with the tensors of these names, and what
        they and the values `handed` on need.
        """
        groups, made, needed = self.of_block(block), list[Op](), set(handed)
        ends = bool(block) and isinstance(block[-1], Yield)
        if ends:
            made.append(Yield(values=handed))
        for i in reversed(range(len(block) - ends)):
            kept = [self._kept(block[i], names, needed)]
            kept += reversed(self._before(groups, i, names))
            for op in kept:
                if op is not None:
                    made.append(op)
                    needed |= {*operands(op), *used_inside(op)}
        return tuple(reversed(made))

    def _before(self, groups: list[SlotGroup], place: int, names: frozenset[str]) -> list[Op]:
        """What is done with slots in front of this place in their block."""
        return [op for g in groups if g.first == place for op in self._fill(g, names)]

    def _kept(self, op: Op, names: frozenset[str], needed: set[Value]) -> Op | None:
        wanted = [n for n, value in enumerate(results_of(op)) if value in needed]
        match op:
            case ForTiles() | ForEach():
                return self._loop(op, names, wanted)
            case If():
                then, orelse = (
                    self.of(body, names, tuple(yielded(body)[n] for n in wanted))
                    for body in (op.then, op.orelse)
                )
                result = tuple(op.result[n] for n in wanted)
                return (
                    dataclasses.replace(op, result=result, then=then, orelse=orelse)
                    if wanted or _fills(then) or _fills(orelse)
                    else None
                )
            case Contract() | Reduce() if wanted:
                raise CompileError(
                    Finding(
                        "whether, or from where, operands of `@` are loaded depends on this; the "
                        "thread that loads them has scalars only",
                        op.loc,
                        "decide by elements of tensors, `end(…)` and sizes, or compute it in a "
                        "kernel before this one",
                    )
                )
            case _:
                return op if wanted else None

    def _loop(
        self, op: ForTiles | ForEach, names: frozenset[str], wanted: list[int]
    ) -> ForTiles | ForEach | None:
        """With as much of what it carries as is wanted behind it, or needed in it."""
        asked, carried = bool(wanted), set(wanted)
        while True:
            kept = sorted(carried)
            inner = self.of(op.body, names, tuple(yielded(op.body)[n] for n in kept))
            used = set(uses(inner))
            carried |= {n for n, value in enumerate(op.args) if value in used}
            if len(carried) == len(kept):
                break
        if not asked and not _fills(inner):
            return None
        result, init, args = (
            tuple(held[n] for n in kept) for held in (op.result, op.init, op.args)
        )
        return dataclasses.replace(op, result=result, init=init, args=args, body=inner)

    def _fill(self, group: SlotGroup, names: frozenset[str]) -> list[Op]:
        """Nothing, if no slot of the ring has anything of these tensors."""
        if not names & loaded_tensors(g for g in self.groups if g.ring == group.ring):
            return []
        acquire = ProducerAcquire(**self.taken(group))
        slot, made = acquire.result, list[Op]([acquire])
        for field in self.orders[group.ring][acquire.layout]:
            edge = group.edges[field]
            load, index, box = edge.load, edge.load.index, ()
            if load.tensor.name in names:
                if edge.box:
                    blocks, index = self.blocks(edge.box, definers(group.block[group.first :]))
                    made, box = [*blocks, *made], edge.box.box(self.sizes)
                where = dict[str, Any](slot=slot, field=field, tensor=load.tensor, index=index)
                made.append(LoadToSlot(**where, box=box, loc=load.loc))
        return [*made, ProducerCommit(slot=slot, loc=group.loc)]

    def taken(self, group: SlotGroup) -> dict[str, Any]:
        """A slot, as the op says that takes it."""
        slot, layout = Value(self.namer.new("slot"), Slot()), self.layouts[group.ring]
        place = dict(ring=self.rings[group.ring], layout=layout.index(group.layout))
        return dict(result=slot, loc=group.loc, **place)

    def blocks(
        self, side: ScaleLoad, later: Mapping[Value, Op]
    ) -> tuple[list[Op], tuple[Value, ...]]:
        """Where a box begins, and what computes it, without what is computed `later`."""
        blocks: list[Op] = []
        index: list[Value] = []
        for value, place in zip(side.load.index, side.places, strict=True):
            if place is not None and place[1] > 1:
                value = Value(self.namer.new("block"), INT)
                blocks.append(Block(result=value, axis=place[0], size=place[1], loc=side.load.loc))
            elif isinstance(known := later.get(value), (Block, Constant)):
                value = Value(self.namer.new("block"), INT)
                blocks.append(dataclasses.replace(known, result=value))
            index.append(value)
        return blocks, tuple(index)


class SkippedSlice(ProducerSlice):
    """The slots that another consumer takes are passed over."""

    def _before(self, groups: list[SlotGroup], place: int, names: frozenset[str]) -> list[Op]:
        taken = (g for g in groups if g.first == place and g.consumer != "decode")
        return [SkipSlot(ring=self.rings[g.ring], loc=g.loc) for g in taken]


def _fills(region: Region) -> bool:
    return any(isinstance(op, (ProducerAcquire, SkipSlot)) for op in walk(region))
