"""Give circular buffers their SMEM and mbarriers, and turn slot operations into waits and copies.

Before:
    %slot = producer_acquire(ring=%ring, state=%s)
    load_to_slot(slot=%slot, field=0, tensor=%A, index=(%m, %k))
    producer_commit(slot=%slot)
After:
    wait_barrier(barriers=%empty, state=%s)
    arrive_expect_tx(barriers=%full, state=%s, tx_bytes=16384)
    tma_load(map=%a_map, coordinates=(%m_start, %k_start), shared=%slots, state=%s, barriers=%full)

A full barrier takes one arrival of each producer, with the bytes that it expects; where threads
copy (tensors that TMA cannot take) each of them arrives once its part is written. An empty barrier
takes one arrival of each consumer warpgroup, and as many from each other CTA of the cluster that
gets a part of its tiles from here. Of a tile that is multicast each CTA copies its part, and
expects the whole.

Why here: states are explicit; products next read tiles at known places.
"""

from __future__ import annotations

import dataclasses

from wsdsl.ir.barrier_ops import (
    AllocateBarriers,
    ArriveBarrier,
    ArriveExpectTx,
    Elect,
    FenceAsyncProxy,
    LaunchGrid,
    WaitBarrier,
)
from wsdsl.ir.memory_ops import AllocateShared, MakeTensorMap, ThreadLoad, TmaLoad
from wsdsl.ir.op import Kernel, Op, Region, Value, regions
from wsdsl.ir.pipeline_ops import (
    AxisAt,
    CircularBuffer,
    ConsumerRelease,
    ConsumerWait,
    LoadToSlot,
    Partition,
    ProducerAcquire,
    ProducerCommit,
    SlotTile,
    TileInShared,
)
from wsdsl.ir.target import SMEM_ALIGN, SWIZZLE_SPAN, widest_swizzle
from wsdsl.ir.tile_ops import Contract
from wsdsl.ir.types import Axis, Barriers, Shared, SharedTile, Tensor, TensorMap
from wsdsl.ir.walk import Namer, walk, with_regions
from wsdsl.lowering.axes import axes_of
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.shares import Group, Share, num_peers, peers_of, share_of

THREADS = 128


@dataclasses.dataclass(frozen=True)
class _Ring:
    """Where a circular buffer lies: slots with a tile at `offsets[layout][field]`, and barriers."""

    shared: Value
    full: Value
    empty: Value
    offsets: tuple[tuple[int, ...], ...]
    multicast: tuple[Group, ...]


def lower_rings(kernel: Kernel) -> Kernel:
    return _Rings(kernel).kernel_without_rings()


class _Rings:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.builder = Builder(Namer.of(kernel))
        self.sizes = {name: axis.size for name, axis in axes_of(kernel).items()}
        self.rings: dict[Value, _Ring] = {}
        self.slots: dict[Value, ProducerAcquire | ConsumerWait] = {}
        self.starts: dict[Value, Value] = {}
        self.fills: dict[Value, list[LoadToSlot]] = {}
        self.maps: dict[tuple[Value, tuple[int, ...], str], Value] = {}
        self.declarations: list[Op] = []
        self.cluster = next((op.cluster for op in kernel.body if isinstance(op, LaunchGrid)), 1)
        self.shares: dict[Group, Share] = {}
        self.peers: dict[Value, tuple[Value | None, ...]] = {}
        self.producers: dict[Value, dict[int, list[str]]] = {}
        """The tensors of a ring, by the place of the partition that copies them."""
        self.now = 0
        """The place of the partition that is converted."""
        self.released_by_threads: set[Value] = set()
        """Rings whose slots may be released with no product since the wait: nothing then says that
        all threads of a warpgroup have come past it, so each arrives for itself."""
        for place, op in enumerate(kernel.body):
            if isinstance(op, Partition):
                self.note_copies(op, place)
        for op in walk(kernel.body):
            for inner in regions(op):
                self.released_by_threads |= _without_product(inner)
            if isinstance(op, (ProducerAcquire, ConsumerWait)):
                self.slots[op.result] = op
            elif isinstance(op, LoadToSlot):
                self.fills.setdefault(op.slot, []).append(op)
            elif isinstance(op, AxisAt):
                self.starts[op.result] = op.start

    def note_copies(self, op: Partition, place: int) -> None:
        rings: dict[Value, Value] = {}
        for inner in walk(op.body):
            if isinstance(inner, ProducerAcquire):
                rings[inner.result] = inner.ring
            elif isinstance(inner, LoadToSlot):
                held = self.producers.setdefault(rings[inner.slot], {})
                held.setdefault(place, []).append(inner.tensor.name)

    def kernel_without_rings(self) -> Kernel:
        for op in self.kernel.body:
            if isinstance(op, CircularBuffer):
                self.place(op)
        body: list[Op] = []
        for place, op in enumerate(self.kernel.body):
            if isinstance(op, CircularBuffer):
                continue
            self.now = place
            body.append(self.partition(op) if isinstance(op, Partition) else op)
        return dataclasses.replace(self.kernel, body=(*self.declarations, *body))

    def partition(self, op: Partition) -> Partition:
        """Its body, behind what is known from its rank in the cluster."""
        loads = [inner for inner in walk(op.body) if isinstance(inner, LoadToSlot)]
        waits = [inner for inner in walk(op.body) if isinstance(inner, ConsumerWait)]
        with self.builder.region() as first:
            for group in dict.fromkeys(inner.multicast for inner in loads if inner.multicast):
                self.shares[group] = share_of(group, self.builder)
            for ring in dict.fromkeys(wait.ring for wait in waits):
                self.peers[ring] = peers_of(self.rings[ring].multicast, self.cluster, self.builder)
        return dataclasses.replace(op, body=(*first, *self.region(op.body)))

    def place(self, op: CircularBuffer) -> None:
        offsets: list[tuple[int, ...]] = []
        total = 0
        for layout in op.layouts:
            at: list[int] = []
            used = 0
            for tile in layout:
                at.append(used)
                elements = self.sizes[tile.axes[0]] * self.sizes[tile.axes[1]]
                used += -(-elements * tile.dtype.bytes // SMEM_ALIGN) * SMEM_ALIGN
            offsets.append(tuple(at))
            total = max(total, used)
        name = op.result.name.replace("ring", "slots")
        shared = self.builder.value(name, Shared(total, op.depth))
        full = self.builder.value("full", Barriers(op.depth))
        empty = self.builder.value("empty", Barriers(op.depth))
        self.declarations += [
            AllocateShared(result=shared, label=shared.name, loc=op.loc),
            AllocateBarriers(
                result=full, label=full.name, arrivals=self.arrivals(op.result), loc=op.loc
            ),
            AllocateBarriers(
                result=empty,
                label=empty.name,
                arrivals=op.consumers
                * num_peers(op.multicast)
                * (THREADS if op.result in self.released_by_threads else 1),
                loc=op.loc,
            ),
        ]
        self.rings[op.result] = _Ring(shared, full, empty, tuple(offsets), op.multicast)

    def arrivals(self, ring: Value) -> int:
        """A partition fills all slots of a ring the same way: one arrival with bytes, if TMA brings
        any of them, and one a thread, if threads do.
        """
        ways = [self.ways(ring, producer) for producer in self.producers[ring]]
        return sum(by_tma + THREADS * by_threads for by_tma, by_threads in ways)

    def ways(self, ring: Value, producer: int) -> tuple[bool, bool]:
        by_threads = [name in self.kernel.unaligned for name in self.producers[ring][producer]]
        return not all(by_threads), any(by_threads)

    def whole_warpgroup(self, producer: int) -> bool:
        """Whether a load partition runs with all of its threads, not one elected."""
        rings = [ring for ring, by in self.producers.items() if producer in by]
        return any(self.ways(ring, producer)[1] for ring in rings)

    def region(self, region: Region) -> Region:
        with self.builder.region() as ops:
            for op in region:
                self.builder.loc = op.loc
                self.convert(op)
        return tuple(ops)

    def convert(self, op: Op) -> None:
        b = self.builder
        match op:
            case ProducerAcquire():
                assert op.state is not None
                ring = self.rings[op.ring]
                b.add(WaitBarrier(barriers=ring.empty, state=op.state, loc=op.loc))
                self.fill(op, ring, op.state)
            case ConsumerWait():
                assert op.state is not None
                b.add(WaitBarrier(barriers=self.rings[op.ring].full, state=op.state, loc=op.loc))
            case ConsumerRelease():
                self.release(op)
            case SlotTile():
                self.locate(op)
            case LoadToSlot() | ProducerCommit():
                pass
            case _:
                b.add(with_regions(op, self.region))

    def release(self, op: ConsumerRelease) -> None:
        b, wait = self.builder, self.slots[op.slot]
        assert wait.state is not None
        ring = self.rings[wait.ring]
        for cta in self.peers[wait.ring]:
            b.add(
                ArriveBarrier(
                    barriers=ring.empty,
                    state=wait.state,
                    cta=cta,
                    each_thread=wait.ring in self.released_by_threads,
                    loc=op.loc,
                )
            )

    def fill(self, op: ProducerAcquire, ring: _Ring, state: Value) -> None:
        b, fills = self.builder, self.fills.get(op.result, [])
        by_tma, by_threads = self.ways(op.ring, self.now)
        with b.region() as copies:
            total = 0
            for fill in fills:
                if fill.tensor.name not in self.kernel.unaligned:
                    total += self.copy_by_tma(fill, op, ring, state)
        expect = ArriveExpectTx(barriers=ring.full, state=state, tx_bytes=total, loc=op.loc)
        if by_tma and self.whole_warpgroup(self.now):
            b.add(Elect(body=(expect, *copies), loc=op.loc))
        elif by_tma:
            b.ops += [expect, *copies]
        if by_threads:
            for fill in fills:
                if fill.tensor.name in self.kernel.unaligned:
                    self.copy_by_threads(fill, op, ring, state)
            b.add(FenceAsyncProxy(loc=op.loc))
            b.add(ArriveBarrier(barriers=ring.full, state=state, each_thread=True, loc=op.loc))

    def coordinates(self, index: tuple[Value, ...]) -> tuple[Value, ...]:
        """Where the tile begins; an axis taken whole begins at 0."""
        starts = (self.starts.get(v, v) for v in index)
        return tuple(self.builder.integer(0) if isinstance(v.type, Axis) else v for v in starts)

    def panels(self, fill: LoadToSlot) -> tuple[int, int, str]:
        """(rows, columns, swizzle) of a tile in its slot: columns along the contiguous axis."""
        *others, last = (v.type for v in fill.index)
        assert isinstance(last, Axis) and isinstance(fill.tensor.type, Tensor)
        (rows,) = (x.size for x in others if isinstance(x, Axis))
        return rows, last.size, widest_swizzle(last.size * fill.tensor.type.dtype.bytes)

    def copy_by_tma(self, fill: LoadToSlot, op: ProducerAcquire, ring: _Ring, state: Value) -> int:
        """One copy a panel, of a multicast tile of this CTA's lines; returns the bytes that will
        arrive.
        """
        assert isinstance(fill.tensor.type, Tensor)
        b, width = self.builder, fill.tensor.type.dtype.bytes
        rows, columns, swizzle = self.panels(fill)
        share = self.shares.get(fill.multicast)
        num = rows // share.num if share else rows
        span = SWIZZLE_SPAN[swizzle] // width
        row_dim = next(i for i, v in enumerate(fill.index) if isinstance(v.type, Axis))
        box = [v.type.size if isinstance(v.type, Axis) else 1 for v in fill.index]
        box[row_dim], box[-1] = num, span
        map = self.tensor_map(fill.tensor, tuple(box), swizzle)
        at = list(self.coordinates(fill.index))
        start, shift = at[-1], None
        if share:
            at[row_dim] = b.plus(at[row_dim], b.times(share.part, num, "line"), "line")
            shift = b.times(share.part, num * span * width, "shift")
        offset = ring.offsets[op.layout][fill.field]
        for panel in range(columns // span):
            b.add(
                TmaLoad(
                    map=map,
                    coordinates=(*at[:-1], b.plus(start, panel * span)),
                    shared=ring.shared,
                    offset=offset + panel * rows * span * width,
                    shift=shift,
                    state=state,
                    barriers=ring.full,
                    multicast=share.mask if share else None,
                    loc=fill.loc,
                )
            )
        return rows * columns * width

    def copy_by_threads(
        self, fill: LoadToSlot, op: ProducerAcquire, ring: _Ring, state: Value
    ) -> None:
        rows, columns, swizzle = self.panels(fill)
        row_dim = next(i for i, v in enumerate(fill.index) if isinstance(v.type, Axis))
        self.builder.add(
            ThreadLoad(
                tensor=fill.tensor,
                coordinates=self.coordinates(fill.index),
                row_dim=row_dim,
                rows=rows,
                columns=columns,
                swizzle=swizzle,
                shared=ring.shared,
                offset=ring.offsets[op.layout][fill.field],
                state=state,
                loc=fill.loc,
            )
        )

    def tensor_map(self, tensor: Value, box: tuple[int, ...], swizzle: str) -> Value:
        key = (tensor, box, swizzle)
        if key not in self.maps:
            made = self.builder.value(f"{tensor.name.lower()}_map", TensorMap())
            self.maps[key] = made
            self.declarations.append(
                MakeTensorMap(result=made, tensor=tensor, box=box, swizzle=swizzle)
            )
        return self.maps[key]

    def locate(self, op: SlotTile) -> None:
        wait = self.slots[op.slot]
        assert wait.state is not None and isinstance(op.result.type, SharedTile)
        ring = self.rings[wait.ring]
        self.builder.add(
            TileInShared(
                result=op.result,
                shared=ring.shared,
                offset=ring.offsets[wait.layout][op.field],
                state=wait.state,
                loc=op.loc,
            )
        )


def _without_product(region: Region) -> set[Value]:
    """Rings of slots that are waited for and released here without a product in between."""
    held: dict[Value, Value] = {}
    found: set[Value] = set()
    for op in region:
        match op:
            case ConsumerWait():
                held[op.result] = op.ring
            case Contract():
                held.clear()
            case ConsumerRelease() if op.slot in held:
                found.add(held[op.slot])
            case _:
                pass
    return found
