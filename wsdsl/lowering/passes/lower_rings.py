"""Allocate SMEM and mbarriers of pipelines, and lower their ops to waits and copies (PARTITIONED).

Before:
    %slot = producer_acquire(ring=%ring, state=%s)
    load_to_slot(slot=%slot, field=0, tensor=%A, index=(%m, %k))
    producer_commit(slot=%slot)
After:
    mbarrier_wait(barriers=%empty, state=%s)
    mbarrier_arrive_expect_tx(barriers=%full, state=%s, tx_bytes=16384)
    tma_load(map=%a_map, coordinates=(%m_start, %k_start), shared=%slots, state=%s, barriers=%full)

A full barrier has one arrival per producer, with the expected bytes; if threads copy
(TMA-incompatible tensors), each thread arrives after its part is written. An empty barrier has one
arrival per consumer warpgroup, and one more per warpgroup of each other CTA of the cluster that
receives a part of its tiles from this CTA. Each CTA copies its part of a multicast tile, and
expects the whole; at its end it waits until all stages have been released.

The thread that issues MMAs in TMEM commits: a commit releases the stages that the MMAs read, to all
CTAs that copied to them, or commits the stages that they write (`lowering/tmem_loop.py`).

Why here: states are explicit; MMAs next read tiles at known addresses.
"""

from collections.abc import Sequence
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.analysis.launch_narrowing import narrowing_of
from wsdsl.ir.op import Kernel, Op, Region, Value, regions, with_fields
from wsdsl.ir.rewriter import Namer, walk, with_regions
from wsdsl.ir.types import Columns, Shared, Tile
from wsdsl.lowering import placed_ring
from wsdsl.lowering.axes import axes_of
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.cta_pairs import BOTH, LEADER, PAIR, group_of, halved_axes, joint_rings
from wsdsl.lowering.epilogue_operands import subtile_offsets
from wsdsl.lowering.multicast_groups import Group, Share, num_peers, peer_mask, peers_of, share_of
from wsdsl.lowering.ring_uses import RingUses, located
from wsdsl.lowering.scale_stores import copy_scales, store_scale_factors
from wsdsl.lowering.slot_copies import SlotCopies, divided, lines_of, slot_offsets
from wsdsl.lowering.slot_writes import clears
from wsdsl.lowering.smem_allocations import tile_bytes
from wsdsl.lowering.tmem_pipelines import TensorRings, awaited, in_tensor_memory, stored

WARPS = 4


def lower_rings(kernel: Kernel) -> Kernel:
    return _Rings(kernel).kernel_without_rings()


class _Rings(RingUses):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel, Builder(Namer.of(kernel)))
        self.axes = axes_of(kernel)
        self.sizes = {name: axis.size for name, axis in self.axes.items()}
        self.rings: dict[Value, placed_ring.PlacedRing] = {}
        self.parts: dict[Value, tuple[int, ...]] = {}
        self.layouts: dict[Value, tuple[tuple[Tile, ...], ...]] = {}
        found = narrowing_of(kernel)
        self.maps = placed_ring.TensorMaps(self.builder, found and found.result)
        grid = ops.grid_of(kernel)
        self.cluster = grid.cluster if grid else 1
        self.shares: dict[Group, Share] = {}
        self.peers: dict[Value, tuple[Value | None, ...]] = {}
        self.producers = placed_ring.Producers.of(kernel)
        self.now = 0  # The place of the partition that is converted.
        self.multiplies = self.stores_scales = self.of_all = False
        """Whether the partition issues MMAs in TMEM, or writes scale factors there; one thread of
        all.
        """
        self.in_tensors = TensorRings(kernel, self.builder, self.sizes)
        self.divided = divided(kernel)
        self.joint, self.held_axes = joint_rings(kernel), halved_axes(kernel.schedule, self.axes)
        self.leader: Value | None = None
        """The CTA of a pair on whose barriers of a joint pipeline both CTAs arrive."""

    def kernel_without_rings(self) -> Kernel:
        for op in self.kernel.body:
            if isinstance(op, ops.Pipeline) and in_tensor_memory(op):
                self.place_in_tensor_memory(op)
            elif isinstance(op, ops.Pipeline) and op.parts:
                self.place_parts(op)
            elif isinstance(op, ops.Pipeline) and op.senders:
                self.place_sums(op)
            elif isinstance(op, ops.Pipeline):
                self.place(op)
        body: list[Op] = []
        for place, op in enumerate(self.kernel.body):
            self.now = place
            if not isinstance(op, ops.Pipeline):
                body.append(self.partition(op) if isinstance(op, ops.Partition) else op)
        self.builder.declarations += self.in_tensors.declarations
        return self.kernel.with_body(self.builder.declared(tuple(body)))

    def partition(self, op: ops.Partition) -> ops.Partition:
        """Return the partition with its body, after the values that depend on its rank."""
        self.multiplies, self.stores_scales = op.role == "mma", op.role == "scale"
        self.of_all = self.multiplies and bool(clears(op))
        loads = [inner for inner in walk(op.body) if isinstance(inner, ops.LoadToSlot)]
        waits = [inner for inner in walk(op.body) if isinstance(inner, ops.ConsumerWait)]
        with self.builder.region() as first:
            self.leader = self.builder.integer(LEADER) if self.joint else None
            loads.sort(key=lambda load: load.field)
            for group in dict.fromkeys(inner.multicast for inner in loads if inner.multicast):
                self.shares[group] = share_of(group, self.builder)
            for ring in dict.fromkeys(wait.ring for wait in waits):
                told = peer_mask if self.multiplies else peers_of
                self.peers[ring] = told(self.rings[ring].multicast, self.cluster, self.builder)
                if ring in self.joint:
                    self.peers[ring] = (self.both if self.multiplies else self.leader,)
        return with_fields(op, body=(*first, *self.region(op.body)))

    def place(self, op: ops.Pipeline) -> None:
        boxes = {(n, i): box for (ring, n, i), box in self.boxes.items() if ring == op.result}
        total, offsets = slot_offsets(op.layouts, boxes, self.held_axes, self.divided)
        released = op.consumers * num_peers(op.multicast) * self.releases(op.result)
        filled = self.producers.arrivals(op.result) * self.sides(op)
        self.declare(op, self.shared(op, total), offsets, (filled, released))

    def place_parts(self, op: ops.Pipeline) -> None:
        """Allocate a pipeline in parts: each thread releases a stage, as no barrier follows its
        reads.
        """
        offsets, sizes = subtile_offsets(op.layouts[0], op.parts, self.sizes)
        shared, released = self.shared(op, *sizes), op.consumers * placed_ring.THREADS
        self.declare(op, shared, (offsets,), (1, released))
        self.parts[op.result] = op.parts

    def place_sums(self, op: ops.Pipeline) -> None:
        """Allocate the stage that a cluster reduction receives; each warpgroup releases it to each
        sender.
        """
        bytes = sum(tile_bytes(tile, self.sizes) for tile in op.layouts[0])
        self.declare(op, self.shared(op, op.senders * bytes), ((),), (1, op.senders * op.consumers))

    def place_in_tensor_memory(self, op: ops.Pipeline) -> None:
        """Allocate a pipeline in TMEM. MMAs commit accumulators, and each warp releases them. Each
        warp commits scale factors and operands, and the MMAs release them.
        """
        columns, offsets = self.in_tensors.place(op)
        warps, stores = WARPS * self.sides(op), self.producers.stores.get(op.result, 0)
        written = (WARPS * stores, 1) if stores else (warps, 1)
        arrivals = written if op.block or stores else (1, warps * op.consumers)
        self.declare(op, [columns], offsets, arrivals)

    def sides(self, op: ops.Pipeline) -> int:
        """Count the CTAs whose threads arrive for a stage."""
        return PAIR if op.result in self.joint else 1

    @property
    def both(self) -> Value | None:
        """The mask of CTAs that a commit arrives at, if not this CTA alone."""
        return self.builder.integer(BOTH) if self.joint else None

    def commit(self, barriers: Value, state: Value, multicast: Value | None) -> None:
        b, group = self.builder, group_of(self.kernel)
        told = dict[str, Any](multicast=multicast, cta_group=group, loc=b.loc)
        with b.elected(self.of_all):
            b.add(ops.Tcgen05Commit(barriers=barriers, state=state, **told))

    def declare(
        self,
        op: ops.Pipeline,
        shared: Sequence[Value],
        offsets: tuple[tuple[int, ...], ...],
        arrivals: tuple[int, int],
    ) -> None:
        """With mbarriers. `shared`: the stages, and SMEM rows of vectors if they lie apart."""
        names = zip(("full", "empty"), arrivals, strict=True)
        full, empty = (self.builder.barriers(name, op.depth, num) for name, num in names)
        self.layouts[op.result] = op.layouts
        lines = shared[1] if len(shared) > 1 else None
        placed = placed_ring.PlacedRing(shared[0], lines, full, empty, offsets, op.multicast)
        self.rings[op.result] = placed

    def shared(self, op: ops.Pipeline, *sizes: int) -> Sequence[Value]:
        names = (op.result.name.replace("ring", what) for what in ("slots", "lines"))
        kinds = (Shared(size, op.depth) for size in sizes if size)
        return [self.builder.shared(*made) for made in zip(names, kinds, strict=False)]

    def releases(self, ring: Value) -> int:
        """Count the arrivals of a consumer for a stage."""
        if self.in_tensor_memory(ring):
            return WARPS
        if ring in self.released_by_threads:
            return placed_ring.THREADS
        return WARPS if self.read_by_threads(ring) else 1

    def read_by_threads(self, ring: Value) -> bool:
        """Whether threads read values in its stages: each warp then releases a stage after its
        reads. All warps wait for the MMAs that read a stage.
        """
        beside = any(held == ring for held, _, _ in self.boxes)
        return ring in self.elements or (beside and ring not in self.copied)

    def in_tensor_memory(self, ring: Value) -> bool:
        return ring in self.rings and isinstance(self.rings[ring].shared.type, Columns)

    def is_stored(self, ring: Value) -> bool:
        """Whether threads fill its stages, in TMEM."""
        return self.in_tensor_memory(ring) and self.producers.by_stores(ring)

    def region(self, region: Region) -> Region:
        return self.builder.each(region, self.convert)

    def convert(self, op: Op) -> None:
        b = self.builder
        match op:
            case ops.Loop() | ops.Yield():
                b.add(self.carried(op))
            case _ if "scheduled" in op.levels:
                b.add(with_regions(op, self.region) if regions(op) else op)
            case ops.ProducerAcquire():
                assert op.state is not None
                self.fill(op, self.rings[op.ring], op.state)
            case ops.ProducerTail():
                assert op.state is not None
                with b.elected(not self.in_tensor_memory(op.ring) and self.elects(op.ring)):
                    placed_ring.drain(b, self.rings[op.ring].empty, op.state)
            case ops.ClusterReduce():
                assert op.ring is not None
                b.add(self.rings[op.ring].of_sums(op))
            case ops.TakeSubtiles():
                assert op.state is not None
                placed_ring.take_subtiles(b, self.rings[op.ring], self.parts[op.ring], op)
            case ops.ConsumerWait():
                assert op.state is not None
                fenced = self.multiplies or self.in_tensor_memory(op.ring)
                awaited(b, self.of_all, self.rings[op.ring].full, op.state, fenced)
            case ops.ConsumerRelease():
                self.release(op)
            case ops.SlotTile() if self.box_of(op):
                pass  # Read where it lies.
            case ops.CopyScales():
                read = self.slot_tiles[op.value]
                where, group = self.place_of(read.slot, read.field), group_of(self.kernel)
                copy_scales(b, op, where, self.in_tensors, self.axes, group)
            case ops.ScalesToSlot():
                read, written = self.slot_tiles[op.value], self.place_of(op.slot, op.field)
                where = self.place_of(read.slot, read.field), self.box_of(read), written
                store_scale_factors(b, op, *where, self.starts, dict(self.kernel.sizes))
            case _ if isinstance(op, ops.InField):
                b.add(self.locate(op))
            case ops.ProducerCommit() if self.stores_scales:
                ring, state, _ = self.place_of(op.slot)
                stored(b, ring.full, state, self.leader)
            case ops.ProducerCommit() if self.is_stored(ring := self.slots[op.slot].ring):
                stored(b, self.rings[ring].full, self.place_of(op.slot)[1])
            case ops.ProducerCommit() if self.in_tensor_memory(ring := self.slots[op.slot].ring):
                self.commit(self.rings[ring].full, self.place_of(op.slot)[1], self.both)
            case ops.ProducerCommit() if self.producers.by_stores(ring := self.slots[op.slot].ring):
                self.written(ring, self.place_of(op.slot)[1])
            case ops.LoadToSlot() | ops.ProducerCommit() | ops.NoSlot():
                pass
            case _:
                b.add(with_regions(op, self.region))

    def carried(self, op: ops.Loop | ops.Yield) -> Op:
        """Replace carried stages by their states, after all other carried values."""

        def states(values: tuple[Value, ...]) -> tuple[Value, ...]:
            slots = (self.placed[v][1] for v in values if v in self.placed)
            return (*(v for v in values if v not in self.placed), *slots)

        if isinstance(op, ops.Yield):
            return with_fields(op, values=states(op.values))
        held = {name: states(getattr(op, name)) for name in ("result", "init", "args")}
        return with_fields(op, **held, body=self.region(op.body))

    def written(self, ring: Value, state: Value) -> None:
        """Let each thread arrive after its writes: no barrier shows that all threads have passed
        the wait for the stage.
        """
        self.builder.arrive(self.rings[ring].full, state, each_thread=True)

    def release(self, op: ops.ConsumerRelease) -> None:
        b, (ring, state) = self.builder, self.placed[op.slot]
        if self.stores_scales:
            b.fence_smem()
            b.sync_threads(None)
        if self.multiplies:
            self.commit(self.rings[ring].empty, state, *self.peers[ring])
            return
        if op.slot in self.changed:
            stored(b, self.rings[ring].empty, state)
            return
        each = dict[str, Any](pred=op.pred, each_warp=self.releases(ring) == WARPS)
        each |= dict(each_thread=self.releases(ring) == placed_ring.THREADS)
        for cta in self.peers[ring]:
            b.arrive(self.rings[ring].empty, state, cta=cta, **each)

    def fill(self, op: ops.ProducerAcquire, ring: placed_ring.PlacedRing, state: Value) -> None:
        b, fills = self.builder, self.fills.get(op.result, [])
        if self.in_tensor_memory(op.ring):
            awaited(b, self.of_all, ring.empty, state)
            return
        if self.producers.by_stores(op.ring):
            b.wait(ring.empty, state)
            return
        tiles, known = self.layouts[op.ring][op.layout], (self.held_axes, self.divided, self.starts)
        counts = (self.leader if op.ring in self.joint else None,)
        copies_to = SlotCopies(
            b, self.maps, ring, state, op.layout, tiles, self.shares, *known, *counts
        )
        if op.ring in self.parts:
            copies_to.in_parts(self.parts[op.ring], fills)
            return
        by_tma, by_threads = self.producers.ways(op.ring, self.now)
        elected, by_all = copies_to.ops(fills, {*self.kernel.unaligned})
        if not by_threads:
            with b.elected(self.elects(op.ring)):
                b.wait(ring.empty, state)
                b.ops += elected
            return
        b.wait(ring.empty, state)
        if by_tma:
            with b.elected():
                b.ops += elected
        b.ops += by_all
        b.fence_smem()
        self.written(op.ring, state)

    def elects(self, ring: Value) -> bool:
        """Whether one thread of a warpgroup alone fills the stages: nothing keeps other threads
        in step, and they would miss a phase.
        """
        by_threads = self.producers.by_stores(ring) or self.producers.ways(ring, self.now)[1]
        return not by_threads and self.producers.whole_warpgroup(self.now)

    def place_of(self, slot: Value, field: int = 0) -> tuple[placed_ring.PlacedRing, Value, int]:
        """Return the pipeline and state of a stage, and the offset of one of its fields."""
        held, ring = self.slots[slot], self.rings[self.slots[slot].ring]
        assert held.state is not None
        return ring, held.state, ring.offsets[held.layout][field]

    def locate(self, op: ops.InField) -> Op:
        slot = self.slots[op.slot]

        def swizzle() -> str:
            tile = self.layouts[slot.ring][slot.layout][op.field]
            return lines_of(self.axes[tile.axes[-1]], tile.dtype, self.divided)[0]

        return located(op, slot, self.rings[slot.ring], self.box_of(op), swizzle)

    def box_of(self, op: ops.InField) -> tuple[int, ...]:
        slot = self.slots[op.slot]
        return self.boxes.get((slot.ring, slot.layout, op.field), ())
