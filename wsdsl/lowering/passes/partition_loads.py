"""Cut the kernel in two: what loads the products' operands, and what computes.

Before:
    for_tiles(index=%m: axis<m of M by 128 rows>) {
      for_tiles(index=%n: axis<n of N by 256 columns>) {
        %acc = for_tiles(index=%k: axis<k of K by 64>, init=(%zeros,), args=(%x: f32[m, n],)) {
          %a = load(tensor=%A, index=(%m, %k))
          %b = load(tensor=%B, index=(%n, %k))
          %y = contract(a=%a, b=%b, acc=%x)
          yield(values=(%y,))
        }
        store(tensor=%C, index=(%m, %n), value=%acc)
After:
    %ring = circular_buffer(depth=4, layouts=((bf16[m, k], bf16[n, k]),))
    partition(role="load") {
      for_work(index=(%m, %n), dims=("M", "N")) {
        for_tiles(index=%k) {
          %slot = producer_acquire(ring=%ring)
          load_to_slot(slot=%slot, field=0, tensor=%A, index=(%m, %k))
          load_to_slot(slot=%slot, field=1, tensor=%B, index=(%n, %k))
          producer_commit(slot=%slot)
        }
      }
    }
    partition(role="compute", num_warpgroups=2) {
      for_work(index=(%m, %n), dims=("M", "N")) {
        %acc = for_tiles(index=%k, init=(%zeros,), args=(%x,)) {
          %slot = consumer_wait(ring=%ring)
          %a = slot_tile(slot=%slot, field=0)
          %b = slot_tile(slot=%slot, field=1)
          %y = contract(a=%a, b=%b, acc=%x)
          consumer_release(slot=%slot)
          yield(values=(%y,))
        }
        store(tensor=%C, index=(%m, %n), value=%acc)

Where some of the tensors are in `Schedule.constant` and others are not, there are two load
partitions with the same loops, one for these and one for those: the first need not wait for the
kernel in front. Both take every slot of a ring that has fields of both, and fill their own. (What
the epilogue reads has time: the thread that brings it in parts waits, whatever is constant.)

With `mode="pingpong"` there are as many compute partitions as consumers, in ping-pong: each
does every second tile and passes over the slots of the others.

The load sub-DAG is the backward slice from the operands of products to global memory. It gets a
loop nest of its own, made of the loops around its loads (`producer_slice.py`). Loads that feed
nothing but elementwise work stay on the compute side; of operands that threads read too they are
given the slot (`slot_elements`).

Why here: on tiles, before anything has an address; both sides are lowered by the same passes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from wsdsl.ir.op import Kernel, Op, Region, Value, operands, regions, results_of
from wsdsl.ir.pipeline_ops import CircularBuffer, ForWork, Partition
from wsdsl.ir.slot_ops import (
    ConsumerRelease,
    ConsumerWait,
    LoadToSlot,
    ProducerAcquire,
    ProducerCommit,
    SkipSlot,
    SlotElements,
    SlotTile,
    SlotValues,
)
from wsdsl.ir.tile_ops import Contract, ForEach, ForTiles, If, Load, Yield
from wsdsl.ir.types import Axis, Ring, SharedTile, Slot, Tile
from wsdsl.ir.walk import (
    Namer,
    copy_region,
    definers,
    replace_operands,
    used_inside,
    with_regions,
)
from wsdsl.lowering.axes import axes_of
from wsdsl.lowering.cooperation import (
    cluster_along,
    num_cooperating,
    num_pingpong_consumers,
    shared_role,
)
from wsdsl.lowering.decode import num_decoders
from wsdsl.lowering.decode_slice import DecodeSlice
from wsdsl.lowering.early_loads import (
    load_shares,
    refuse_addresses_in_memory,
    refuse_written_addresses,
)
from wsdsl.lowering.epilogue_operands import epilogue_loads
from wsdsl.lowering.footprint import ring_depth
from wsdsl.lowering.load_epilogue_operands import epilogue_ring, fill_subtiles, read_in_subtiles
from wsdsl.lowering.load_groups import LoadGroup, RingKey, alike, find_load_groups, layouts_of
from wsdsl.lowering.output_nest import output_nest
from wsdsl.lowering.producer_slice import ProducerSlice, SkippedSlice
from wsdsl.schedule import Schedule


def partition_loads(kernel: Kernel) -> Kernel:
    assert kernel.schedule is not None
    schedule, namer = kernel.schedule, Namer.of(kernel)
    nest, body = output_nest(kernel)
    groups = find_load_groups(kernel, body)
    num_pingpong = num_pingpong_consumers(schedule)
    rings = _make_rings(groups, schedule, namer)
    declared = list(rings.values())
    sizes = {name: axis.size for name, axis in axes_of(kernel).items()}
    filled_by = ProducerSlice(groups, {k: ring.result for k, ring in rings.items()}, namer, sizes)
    made_by = DecodeSlice(filled_by, kernel)
    read_by = _ComputeSide(filled_by, kernel)
    within = tuple(loop.within if isinstance(loop, ForTiles) else 0 for loop in nest)

    def work(
        inner: Region, pingpong_index: int = 0, num_pingpong: int = 1, skip: Region = ()
    ) -> Region:
        walked = ForWork(
            index=tuple(loop.index for loop in nest),
            dims=tuple(_dim(loop) for loop in nest),
            scheduler=schedule.scheduler or "persistent",
            swizzle=schedule.swizzle or 1,
            raster=schedule.raster or "",
            cluster=tuple(cluster_along(schedule, _name(loop)) for loop in nest),
            within=within if any(within) else (),
            pingpong_index=pingpong_index,
            num_pingpong=num_pingpong,
            body=inner,
            skip=skip,
            loc=nest[0].loc if nest else kernel.loc,
        )
        return (walked,)

    registers = schedule.registers or {}
    partitions: list[Op] = []
    for names in load_shares(groups, schedule):
        load_side = filled_by.of(body, names)
        refuse_written_addresses(kernel, load_side)
        refuse_addresses_in_memory(load_side, names, schedule)
        load = Partition(
            role="load",
            num_warpgroups=1,
            registers=registers.get("load", 0),
            body=copy_region(work(load_side), namer),
            loc=kernel.loc,
        )
        partitions.append(load)
    decode_side = made_by.of(body, frozenset()) if num_decoders(kernel) else ()
    filled: Region = ()
    if num_pingpong > 1:
        filled = SkippedSlice(filled_by).of(body, frozenset())
    parted = epilogue_loads(kernel, schedule, body) if groups else ()
    if parted:
        own = epilogue_ring(kernel, parted, namer)
        declared.append(own)
        side = _without_unused(fill_subtiles(body, parted, own.result, namer))
        refuse_written_addresses(kernel, side)
        beside = Partition(
            role="load", num_warpgroups=0, body=copy_region(work(side), namer), loc=kernel.loc
        )
        partitions.append(beside)
        filled = (*filled, *side)
    if decode_side:
        decode = Partition(
            role="decode",
            registers=registers.get("decode", 0),
            body=copy_region(work(decode_side), namer),
            loc=kernel.loc,
        )
        partitions.append(decode)
    for pingpong_index in range(num_pingpong):
        # Operands first: the loads of a block are known by the block that they stand in.
        compute_body = read_by.of(body)
        if parted:
            compute_body = read_in_subtiles(
                compute_body, parted, declared[-1].result, pingpong_index, num_pingpong
            )
        inner = work(
            compute_body,
            pingpong_index,
            num_pingpong,
            _passing_over(filled) if num_pingpong > 1 else (),
        )
        compute = Partition(
            role="compute",
            num_warpgroups=num_cooperating(schedule),
            share=shared_role(kernel, schedule),
            registers=registers.get("compute", 0),
            body=copy_region(inner, namer) if num_pingpong > 1 else inner,
            loc=kernel.loc,
        )
        partitions.append(compute)
    return dataclasses.replace(kernel, level="partitioned", body=(*declared, *partitions))


def _dim(loop: ForTiles | ForEach) -> str:
    if isinstance(loop, ForEach):
        return loop.dim
    assert isinstance(loop.index.type, Axis)
    return loop.index.type.dim


def _name(loop: ForTiles | ForEach) -> str:
    return loop.index.type.name if isinstance(loop.index.type, Axis) else loop.index.name


def _make_rings(
    groups: tuple[LoadGroup, ...], schedule: Schedule, namer: Namer
) -> dict[RingKey, CircularBuffer]:
    return {
        key: CircularBuffer(
            result=Value(namer.new("ring"), Ring()),
            depth=ring_depth(key, schedule.stages or 1),
            layouts=tuple(held),
            consumers=1 if key.kind == "encoded" else num_cooperating(schedule),
        )
        for key, held in sorted(layouts_of(groups).items())
    }


class _ComputeSide:
    """Of one kernel body, whose loads are cut out of it."""

    def __init__(self, loads: ProducerSlice, kernel: Kernel) -> None:
        self.loads, self.axes = loads, axes_of(kernel)
        products = [op for op in kernel.ops if isinstance(op, Contract)]
        self.multiplied = {v for op in products for v in (op.a, op.b)}
        assert kernel.schedule is not None
        self.by_rows = shared_role(kernel, kernel.schedule) == "rows"

    def of(self, block: Region) -> Region:
        """The block with the operands' loads replaced by slots that are waited for."""
        groups = [g for g in self.loads.of_block(block) if g.ring.kind != "encoded"]
        made: list[Op] = []
        tiles: dict[Value, Value] = {}
        slots: dict[int, Value] = {}
        read = [self._raw(group, block) for group in groups]
        if len(groups) == 1:
            read[0] |= self._read_in_place(groups[0], block)
        elements = {value: own for found in read for value, own in found.items()}
        held = [_held(group, block, own) for group, own in zip(groups, read, strict=True)]
        for i, op in enumerate(block):
            for n, group in enumerate(groups):
                if held[n].start == i:
                    slots[n] = Value(self.loads.namer.new("slot"), Slot())
                    made += self._take(group, slots[n], block, tiles)
                    made += self._elements(group, slots[n], read[n])
            changed = op
            if isinstance(op, (ForTiles, ForEach)):
                changed = dataclasses.replace(op, body=self.of(op.body))
            elif isinstance(op, If):
                changed = dataclasses.replace(op, then=self.of(op.then), orelse=self.of(op.orelse))
            if not any(op is side.load for group in groups for side in group.beside):
                made.append(replace_operands(_read_from_slots(changed, tiles), elements))
            for n in range(len(groups)):
                if held[n][-1] == i:
                    made.append(ConsumerRelease(slot=slots[n], loc=op.loc))
        return _without_unused(made)

    def _read_in_place(self, group: LoadGroup, block: Region) -> dict[Value, Value]:
        """Operands that threads read too, where the slot has them: what stands for the loads. Not
        where it would be held around other slots, or taken before it is known what is in it.
        """
        found: dict[Value, Value] = {}
        for load in group.loads:
            same = alike(load, block)
            users = [i for i, op in enumerate(block) if same & {*operands(op)}]
            users = [i for i in users if not isinstance(block[i], Contract)]
            inside = any(same & used_inside(op) for op in block)
            handed_on = any(isinstance(block[i], Yield) for i in users)
            if users and not inside and not handed_on and self._fits(load):
                made = Value(self.loads.namer.new(load.tensor.name.lower()), load.result.type)
                found |= dict.fromkeys(same, made)
        held = _held(group, block, found)
        within = block[held.start : held.stop]
        later = {v for op in within for v in results_of(op)}
        if any(map(regions, within)) or any(later & {*load.index} for load in group.loads):
            return {}
        return {} if group.beside and held.start < group.first else found

    def _raw(self, group: LoadGroup, block: Region) -> dict[Value, Value]:
        """What operands are computed from, and what stands for it where it is read in a slot. Where
        a product takes the same tile as it is, that comes through a slot of its own.
        """
        found: dict[Value, Value] = {}
        for load in group.loads if group.ring.kind == "raw" else ():
            made = Value(self.loads.namer.new(load.tensor.name.lower()), load.result.type)
            found |= dict.fromkeys(alike(load, block) - self.multiplied, made)
        return found

    def _fits(self, load: Load) -> bool:
        """Whether a fragment has rows and columns as the slot's lines are."""
        kind, last = load.result.type, load.index[-1].type
        assert isinstance(kind, Tile)
        roles = [self.axes[x].role for x in kind.axes]
        lines = isinstance(last, Axis) and last.name == kind.axes[-1]
        return self.by_rows and lines and roles == ["rows", "columns"]

    def _elements(
        self, group: LoadGroup, slot: Value, elements: dict[Value, Value]
    ) -> Iterator[SlotElements]:
        for field, load in enumerate(group.loads):
            if load.result in elements:
                yield SlotElements(
                    result=elements[load.result],
                    slot=slot,
                    field=field,
                    tensor=load.tensor,
                    index=load.index,
                    loc=load.loc,
                )

    def _take(
        self, group: LoadGroup, slot: Value, block: Region, tiles: dict[Value, Value]
    ) -> list[Op]:
        ring = self.loads.rings[group.ring]
        made: list[Op] = [
            ConsumerWait(result=slot, ring=ring, layout=self.loads.layout(group), loc=group.loc)
        ]
        for field, (value, tile) in enumerate(group.made):
            tiles[value] = Value(
                self.loads.namer.new(value.name), SharedTile(tile.dtype, tile.axes)
            )
            made.append(SlotTile(result=tiles[value], slot=slot, field=field, loc=group.loc))
        for field, load in enumerate(group.loads):
            assert isinstance(load.result.type, Tile)
            kind = SharedTile(load.result.type.dtype, load.result.type.axes)
            tile = Value(self.loads.namer.new(load.tensor.name.lower()), kind)
            made.append(SlotTile(result=tile, slot=slot, field=field, loc=load.loc))
            if group.ring.kind != "raw":
                tiles |= dict.fromkeys(alike(load, block), tile)
        for field, side in enumerate(group.beside, len(group.loads)):
            last = None
            if side.is_rounded:
                blocks, index = self.loads.blocks(side, definers(group.block[group.first :]))
                made += blocks
                last = index[-1]
            made.append(
                SlotValues(
                    result=side.load.result,
                    slot=slot,
                    field=field,
                    every=side.axis[1],
                    stride=side.stride(self.loads.sizes),
                    last=last,
                    loc=side.load.loc,
                )
            )
        return made


def _held(group: LoadGroup, block: Region, elements: dict[Value, Value]) -> range:
    """The places in the block at which a slot is held, if `elements` are read in it."""
    users = [i for i, op in enumerate(block) if any(v in elements for v in operands(op))]
    return range(min([group.first, *users]), max([group.last, *users]) + 1)


def _passing_over(region: Region) -> Region:
    """A load side that takes its slots and leaves them to another."""
    made: list[Op] = []
    for op in region:
        if isinstance(op, ProducerAcquire):
            made.append(SkipSlot(ring=op.ring, loc=op.loc))
        elif not isinstance(op, (LoadToSlot, ProducerCommit)):
            made.append(with_regions(op, _passing_over))
    return _without_unused(made)


def _read_from_slots(op: Op, tiles: dict[Value, Value]) -> Op:
    """Products read their operands from slots."""
    if isinstance(op, Contract):
        return dataclasses.replace(op, a=tiles.get(op.a, op.a), b=tiles.get(op.b, op.b))
    if isinstance(op, (ForTiles, ForEach)):
        return dataclasses.replace(op, body=tuple(_read_from_slots(i, tiles) for i in op.body))
    if isinstance(op, If):
        return dataclasses.replace(
            op,
            then=tuple(_read_from_slots(i, tiles) for i in op.then),
            orelse=tuple(_read_from_slots(i, tiles) for i in op.orelse),
        )
    return op


def _without_unused(ops: list[Op] | Region) -> Region:
    """Drop ops whose results nothing in the block uses; they all are free of effects."""
    needed: set[Value] = set()
    kept: list[Op] = []
    for op in reversed(ops):
        made = results_of(op)
        pure = made and not regions(op) and not isinstance(op, (ProducerAcquire, ConsumerWait))
        if pure and not needed & set(made):
            continue
        needed |= {*operands(op), *used_inside(op)}
        kept.append(op)
    return tuple(reversed(kept))
