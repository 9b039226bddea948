"""Slice the kernel's body into partitions, with pipelines between them.

**A load partition** fills stages, and computes their addresses. It is the backward slice of the
kernel's body from the fills: it keeps the loops and conditions around them, and only those carried
values that the fills depend on.

**A compute partition**: MMAs and threads read the tiles of stages after a wait.

    %slot = consumer_wait(ring=%ring)
    %a = slot_tile(slot=%slot, field=0)
    %b = slot_tile(slot=%slot, field=1)
    %y = contract(a=%a, b=%b, acc=%x)
    consumer_release(slot=%slot)

It is the kernel's body without the other partitions' ops. Threads read operands from the stage as
`slot_elements`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from wsdsl.diagnostics import CompileError, Loc
from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Makers, Op, Region, Value, operands, results_of, with_fields
from wsdsl.ir.rewriter import (
    Namer,
    definers,
    replace_operands,
    used_inside,
    uses,
    walk,
    with_regions,
    yielded,
)
from wsdsl.ir.types import SharedTile, Slot
from wsdsl.lowering.axes import axes_of
from wsdsl.lowering.buffer_assignment import SlotGroup, layouts_of
from wsdsl.lowering.builder import INT
from wsdsl.lowering.early_loads import loaded_tensors
from wsdsl.lowering.edge import Edge
from wsdsl.lowering.scale_loads import ScaleLoad


class ProducerSlice:
    """Of one kernel body, whose loads go to the stages of `rings`."""

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
        """Return the block with only the ops that fill stages with the named tensors, and the
        inputs of these and of the values `handed` to the next iteration.
        """
        groups, made, needed = self.of_block(block), list[Op](), set(handed)
        ends = bool(block) and isinstance(block[-1], ops.Yield)
        if ends:
            made.append(ops.Yield(values=handed))
        for i in reversed(range(len(block) - ends)):
            kept = [self._kept(block[i], names, needed)]
            kept += reversed(self._before(groups, i, names))
            for op in kept:
                if op is not None:
                    made.append(op)
                    needed |= {*operands(op), *used_inside(op)}
        return tuple(reversed(made))

    def _before(self, groups: list[SlotGroup], place: int, names: frozenset[str]) -> list[Op]:
        """Return the ops on stages before this index of their block."""
        return [op for g in groups if g.first == place for op in self._fill(g, names)]

    def _kept(self, op: Op, names: frozenset[str], needed: set[Value]) -> Op | None:
        wanted = [n for n, value in enumerate(results_of(op)) if value in needed]
        match op:
            case ops.ForTiles() | ops.ForEach():
                return self._loop(op, names, wanted)
            case ops.If():
                then, orelse = (
                    self.of(body, names, tuple(yielded(body)[n] for n in wanted))
                    for body in (op.then, op.orelse)
                )
                result = tuple(op.result[n] for n in wanted)
                is_needed = wanted or _fills(then) or _fills(orelse)
                sides = dict(then=then, orelse=orelse)
                return with_fields(op, result=result, **sides) if is_needed else None
            case ops.Contract() | ops.Reduce() | ops.ReduceBlocks() | ops.Scan() if wanted:
                raise CompileError(
                    "WS0335 loads of operands of `@` depend on this; the thread that issues them "
                    "computes scalars only",
                    op.loc,
                    "use elements of tensors, `end(…)` and sizes, or compute this in a previous "
                    "kernel",
                )
            case _:
                return op if wanted else None

    def _loop(
        self, op: ops.DimLoop, names: frozenset[str], wanted: list[int]
    ) -> ops.DimLoop | None:
        """Return the loop with the carried variables `wanted` after it, or needed in it."""
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
        return with_fields(op, result=result, init=init, args=args, body=inner)

    def _fill(self, group: SlotGroup, names: frozenset[str]) -> list[Op]:
        """Fill a stage; return no ops if the pipeline has none of these tensors."""
        if not names & loaded_tensors(g for g in self.groups if g.ring == group.ring):
            return []
        acquire = ops.ProducerAcquire(**self.taken(group))
        slot, made = acquire.result, list[Op]([acquire])
        for field in self.orders[group.ring][acquire.layout]:
            edge = group.edges[field]
            load, index, box = edge.load, edge.load.index, ()
            if load.tensor.name in names:
                if isinstance(edge.box, ScaleLoad):
                    blocks, index = self.blocks(edge.box, definers(group.block[group.first :]))
                    made, box = [*blocks, *made], edge.box.box(self.sizes)
                where = dict[str, Any](slot=slot, field=field, tensor=load.tensor, index=index)
                made.append(ops.LoadToSlot(**where, box=box, loc=load.loc))
        return [*made, ops.ProducerCommit(slot=slot, loc=group.loc)]

    def taken(self, group: SlotGroup) -> dict[str, Any]:
        """Return the fields of the op that takes a stage."""
        slot, layout = Value(self.namer.new("slot"), Slot()), self.layouts[group.ring]
        place = dict(ring=self.rings[group.ring], layout=layout.index(group.layout))
        return dict(result=slot, loc=group.loc, **place)

    def blocks(self, side: ScaleLoad, later: Makers) -> tuple[list[Op], tuple[Value, ...]]:
        """Where a box begins, and what computes it, without what is computed `later`."""
        blocks: list[Op] = []
        index: list[Value] = []
        for value, place in zip(side.load.index, side.places, strict=True):
            if place is not None and place[1] > 1:
                value = self._block(*place, side.load.loc, blocks)
            elif isinstance(known := later.get(value), (ops.Block, ops.Constant)):
                value = Value(self.namer.new("block"), INT)
                blocks.append(dataclasses.replace(known, result=value))
            index.append(value)
        rank = len(side.load.tensor.as_tensor.dims)
        for _ in range(rank - len(index)):
            index.append(Value(self.namer.new("c"), INT))
            blocks.append(ops.Constant(result=index[-1], value=0))
        return blocks, tuple(index)

    def _block(self, axis: Value, every: int, loc: Loc | None, made: list[Op]) -> Value:
        """The number of the block in which a tile begins."""
        new, size = self.namer.new, self.sizes[axis.as_axis.name]
        several = not axis.as_axis.role and size > every
        value = Value(new("block"), INT)
        made.append(ops.Block(result=value, axis=axis, size=size if several else every, loc=loc))
        if several:
            # Tiles along the contraction axis begin at multiples of their size.
            each, tile, value = Value(new("c"), INT), value, Value(new("block"), INT)
            made.append(ops.Constant(result=each, value=size // every))
            made.append(ops.Map(result=value, fn="mul", args=(tile, each), loc=loc))
        return value


class SkippedSlice(ProducerSlice):
    """Skip the stages of another consumer."""

    def _before(self, groups: list[SlotGroup], place: int, names: frozenset[str]) -> list[Op]:
        taken = (g for g in groups if g.first == place and not g.to_threads)
        return [ops.SkipSlot(ring=self.rings[g.ring], loc=g.loc) for g in taken]


def _fills(region: Region) -> bool:
    return any(isinstance(op, (ops.ProducerAcquire, ops.SkipSlot)) for op in walk(region))


class ConsumerSlice:
    """Of the body that `loads` are cut out of, in one of `num_pingpong` partitions in ping-pong.
    An epilogue reads `in_parts`.
    """

    def __init__(
        self,
        loads: ProducerSlice,
        in_parts: tuple[SlotGroup, ...],
        pingpong_index: int,
        num_pingpong: int,
    ) -> None:
        self.loads = loads
        self.takes = dict[Op, ops.TakeSubtiles | None]()
        """In place of loads: the first of a group takes all of its tiles."""
        for group in in_parts:
            first, *others = group.loads
            take = ops.TakeSubtiles(
                result=tuple(load.result for load in group.loads),
                ring=loads.rings[group.ring],
                pingpong_index=pingpong_index,
                num_pingpong=num_pingpong,
                loc=first.loc,
            )
            self.takes |= {first: take, **dict.fromkeys(others)}

    def of(self, block: Region) -> Region:
        """Return the block with loads replaced by waits for stages."""
        groups = [g for g in self.loads.of_block(block) if not g.to_threads]
        beside = [edge.made for group in groups for edge in group.edges if edge.box]
        made: list[Op] = []
        tiles, elements = dict[Value, Value](), dict[Value, Value]()
        slots: dict[int, Value] = {}
        for i, op in enumerate(block):
            for n, group in enumerate(groups):
                if group.held.start == i:
                    wait = ops.ConsumerWait(**self.loads.taken(group))
                    slots[n] = wait.result
                    made += [wait, *self._read(group, slots[n], tiles, elements)]
            if op in self.takes:
                made += [take] if (take := self.takes[op]) else []
            elif op not in beside:
                made += self.before(block, i)
                inner = with_regions(op, self.of)
                made.append(replace_operands(_read_from_slots(inner, tiles), elements))
            for n, group in enumerate(groups):
                if group.held[-1] == i:
                    made.append(ops.ConsumerRelease(slot=slots[n], loc=op.loc))
            made += self.behind(block, i)
        return tuple(made)

    def before(self, block: Region, place: int) -> list[Op]:
        """Return further ops on stages before an op."""
        return []

    def behind(self, block: Region, place: int) -> list[Op]:
        """Return further ops on stages after an op."""
        return []

    def _read(
        self, group: SlotGroup, slot: Value, tiles: dict[Value, Value], elements: dict[Value, Value]
    ) -> list[Op]:
        """`tiles` are what products read, `elements` what threads do."""
        new, made = self.loads.namer.new, list[Op]()
        for field, edge in enumerate(group.edges):
            where = dict[str, Any](slot=slot, field=field, loc=edge.made.loc)
            if edge.box and "mma" not in edge.consumers:
                made += self._values(group, edge, where)
            if "mma" in edge.consumers:
                kind = SharedTile(edge.layout.dtype, edge.layout.axes)
                tile = Value(new(edge.name.lower()), kind)
                made.append(ops.SlotTile(result=tile, **where))
                if edge.box:
                    before, tile = tile, Value(new(edge.name.lower()), kind)
                    copied = ops.CopyScales(result=tile, value=before, block=edge.block)
                    made.append(dataclasses.replace(copied, loc=edge.made.loc))
                tiles |= dict.fromkeys(edge.values, tile)
            if "compute" in edge.consumers:
                read, load = Value(new(edge.name.lower()), edge.value.type), edge.load
                read_from = dict[str, Any](tensor=load.tensor, index=load.index)
                made.append(ops.SlotElements(result=read, **where, **read_from))
                elements |= dict.fromkeys(edge.values, read)
        return made

    def _values(self, group: SlotGroup, edge: Edge, where: Mapping[str, Any]) -> list[Op]:
        """Return the values that are in the stage of operands."""
        box, made, last = edge.box, list[Op](), None
        assert isinstance(box, ScaleLoad)
        if box.is_rounded:
            made, index = self.loads.blocks(box, definers(group.block[group.first :]))
            last = index[-1]
        stride, every = box.stride(self.loads.sizes), box.axis[1]
        read = ops.SlotValues(result=edge.value, every=every, stride=stride, last=last, **where)
        return [*made, read]


def _read_from_slots(op: Op, tiles: dict[Value, Value]) -> Op:
    """The bodies of consumers, whose MMAs read operands in stages."""
    if isinstance(op, ops.Contract):
        return replace_operands(op, {v: tiles[v] for v in (op.a, op.b, *op.scales) if v in tiles})
    return with_regions(op, lambda region: tuple(_read_from_slots(i, tiles) for i in region))
