"""Tensor maps, and TMA loads and stores, which complete asynchronously."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from wsdsl.ir import ops
from wsdsl.ir.op import Op, Value
from wsdsl.simulator.ops.gmem import access_global, check_repeated
from wsdsl.simulator.ops.smem import aligned
from wsdsl.simulator.recorded_effects import Kind
from wsdsl.simulator.reference.arithmetic import Array
from wsdsl.simulator.state.smem_bytes import Region
from wsdsl.simulator.state.smem_races import CopyOut, StoredOut
from wsdsl.simulator.state.tensor_maps import TensorMapValue
from wsdsl.simulator.state.transfers import Transfer
from wsdsl.simulator.warpgroup import (
    Blocked,
    SharedItems,
    Steps,
    StoreGroup,
    Warpgroup,
    destinations,
)


def make_tensor_map(wg: Warpgroup, op: ops.MakeTensorMap) -> None:
    made = TensorMapValue(wg.cta.arguments.tensors[op.tensor.name], op.box, op.swizzle)
    wg.check(op, made.fault())
    wg.values[op.result.name] = made


def coordinates_of(wg: Warpgroup, op: Op, values: tuple[Value, ...]) -> tuple[int, ...]:
    return tuple(int(wg.get(v, op)) for v in values)


@dataclass(eq=False)
class LoadInFlight(Transfer):
    """A TMA load."""

    map: TensorMapValue
    coordinates: tuple[int, ...]

    def data(self) -> Array:
        return self.map.read(self.coordinates).reshape(self.map.in_shared)


def tma_load(wg: Warpgroup, op: ops.TmaLoad) -> None:
    held: TensorMapValue = wg.values[op.map.name]
    shift = 0 if op.shift is None else int(wg.get(op.shift, op))
    start, item = wg.place(op, held.bytes, op.offset + shift)
    aligned(wg, op, start, held.swizzle)
    at = coordinates_of(wg, op, op.coordinates)
    wg.check(op, held.misplaced(at))
    for cta in destinations(wg, op, op.multicast):
        counted = cta if op.cta is None else wg.of_pair(op, op.cta)
        barrier = wg.barrier(op, op.barriers, wg.values[op.state.name], counted)
        phases, region = wg.cta.clocks.phases_seen(wg.one), held.region(start)
        load = LoadInFlight(wg, op, cta, region, barrier, wg.one, phases, held, at)
        load.start(item)
        access_global(wg, op, "read", held.tensor.name, held.inside(at), wg.one, load.access)


@dataclass(eq=False)
class StoreInFlight:
    """The four warps' TMA stores of one op: read SMEM some time, write GMEM some time later."""

    wg: Warpgroup
    map: TensorMapValue
    add: bool
    boxes: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    regions: list[Region] = field(default_factory=list[Region])
    accesses: list[CopyOut] = field(default_factory=list[CopyOut])
    writes: list[StoredOut] = field(default_factory=list[StoredOut])
    lines: list[Array] | None = None
    read_done: bool = False
    write_done: bool = False
    speed: float = 1.0

    def step(self) -> bool:
        if self.lines is None:
            self.lines = [self.wg.cta.memory.read(region) for region in self.regions]
            self.read_done = True
            return True
        tensor = self.map.tensor
        for box, lines, own in zip(self.boxes, self.lines, self.writes, strict=True):
            at = self.map.inside(box)
            before = tensor.array[at].copy()
            self.map.write(box, lines, self.add)
            check_repeated(self.wg, own.op, tensor, at, before)
        self.lines = []
        self.write_done = True
        return False


def boxes_of(
    wg: Warpgroup, op: ops.TmaStore | ops.ThreadStore, held: TensorMapValue, at: tuple[int, ...]
) -> Iterator[tuple[int, Region, tuple[int, ...], str]]:
    """Of each box of a warp: the warp's number, the box in SMEM, its place in the tensor, and what
    it is that the warp does."""
    shared: SharedItems = wg.values[op.shared.name]
    item = int(wg.get(op.item, op))
    for part in op.boxes(held.bytes):
        address = wg.item(op, shared, item, part.bytes.start, held.bytes)
        aligned(wg, op, address, held.swizzle)
        what = f"it reads item {item} of `{shared.label}` (warp {part.warp})"
        yield part.warp, held.region(address), op.box_start(part, held.box, at), what


def tma_store(wg: Warpgroup, op: ops.TmaStore) -> None:
    held: TensorMapValue = wg.values[op.map.name]
    at = coordinates_of(wg, op, op.coordinates)
    wg.check(op, held.misplaced(at))
    store = StoreInFlight(wg, held, op.accumulate)
    for i, region, box, what in boxes_of(wg, op, held, at):
        warp = wg.storing(i)
        access = CopyOut(wg.told, op, warp.start)
        wg.begin(op, what, "read", wg.cta.memory, region, access, warp, (wg.index, i))
        written = StoredOut(wg.full_name, op, warp.start)
        kind = "add" if op.accumulate else "write"
        access_global(wg, op, kind, held.tensor.name, held.inside(box), warp, written)
        wg.check(op, held.spills(box))
        store.boxes.append(box)
        store.regions.append(region)
        store.accesses.append(access)
        store.writes.append(written)
    wg.open_stores.stores.append(store)
    wg.cta.residents.start(store, op, wg.cta)


def _effect_of_each_warp(wg: Warpgroup, op: Op, kind: Kind) -> None:
    for i in range(4):
        wg.effect(op, kind, "bulk", wg.storing(i))


def tma_store_commit(wg: Warpgroup, op: ops.TmaStoreCommit) -> None:
    _effect_of_each_warp(wg, op, "arrive")
    wg.store_groups.append(wg.open_stores)
    wg.open_stores = StoreGroup()


def tma_store_wait(wg: Warpgroup, op: ops.TmaStoreWait) -> Steps:
    last = max(0, len(wg.store_groups) - op.pending)
    first = wg.read_groups if op.read else wg.written_groups
    stores: list[StoreInFlight] = [s for g in wg.store_groups[first:last] for s in g.stores]

    def over() -> bool:
        return all(s.read_done if op.read else s.write_done for s in stores)

    if not over():
        yield Blocked(op, over, lambda: "its TMA stores")
    _effect_of_each_warp(wg, op, "wait")
    own = wg.cta.clocks.own
    for i in range(4):
        own[wg.storing(i)] += 1
    for group in wg.store_groups[wg.read_groups : last]:
        for store in group.stores:
            for access in store.accesses:
                access.epoch = int(own[access.by])
    wg.read_groups = max(wg.read_groups, last)
    if not op.read:
        for store in stores:
            for written in store.writes:
                written.epoch = int(own[written.by])
        wg.written_groups = max(wg.written_groups, last)


def prefetch_box(wg: Warpgroup, op: ops.PrefetchBox | ops.PrefetchTensorMap) -> None:
    """No thread observes the contents of a cache."""


prefetch_tensor_map = prefetch_box
