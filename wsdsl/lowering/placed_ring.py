"""Allocated pipelines: their SMEM and barriers, their producers (TMA or threads) and consumers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Region, Value, regions, walk, with_fields
from wsdsl.ir.ops import ClusterReduce, Contract, MakeTensorMap, Partition
from wsdsl.ir.types import Barriers, Shared, TensorMap, Tile
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.epilogue_operands import is_line
from wsdsl.lowering.multicast_groups import Group


@dataclass(frozen=True)
class PlacedRing:
    """Stages with a tile at `offsets[layout][field]`, and barriers; `lines`, if not None, for tiles
    of one line. In tensor memory `shared` are columns, and so are offsets.
    """

    shared: Value
    lines: Value | None
    full: Value
    empty: Value
    offsets: tuple[tuple[int, ...], ...]
    multicast: tuple[Group, ...]

    @property
    def depth(self) -> int:
        return self.shared.type_as(Shared).num

    def of_sums(self, op: ClusterReduce) -> ClusterReduce:
        """Return the op with the buffers of the accumulators that other CTAs send."""
        where = dict(shared=self.shared, full=self.full, empty=self.empty)
        return with_fields(op, ring=None, **where)

    def shared_of(self, tile: Tile) -> Value:
        return self.lines if self.lines is not None and is_line(tile) else self.shared


@dataclass
class TensorMaps:
    """One per box that is copied of a tensor. `narrower`: by how much the tiles of a launch are
    narrower, if launches differ.
    """

    builder: Builder
    narrower: Value | None = None
    made: dict[tuple[Value, tuple[int, ...], str, int], Value] = field(default_factory=dict)

    def of(self, tensor: Value, box: tuple[int, ...], swizzle: str, narrowed: int = -1) -> Value:
        """`narrowed`: the dimension along which it is as wide as the launch's tiles, if any."""
        key, narrower = (tensor, box, swizzle, narrowed), self.narrower if narrowed >= 0 else None
        if key not in self.made:
            made = self.builder.value(f"{tensor.name.lower()}_map", TensorMap())
            self.made[key] = made
            which = dict[str, Any](tensor=tensor, narrower=narrower, narrowed=max(narrowed, 0))
            declared = MakeTensorMap(result=made, box=box, swizzle=swizzle, **which)
            self.builder.declarations.append(declared)
        return self.made[key]


def drain(b: Builder, empty: Value, state: Value) -> None:
    """Wait for each stage once; waits for stages that were never filled pass."""
    assert isinstance(empty.type, Barriers)
    for left in reversed(range(empty.type.num)):
        b.wait(empty, state)
        state = b.next_state(state, empty.type.num) if left else state


def take_subtiles(
    b: Builder, ring: PlacedRing, parts: tuple[int, ...], op: ops.TakeSubtiles
) -> None:
    assert op.state is not None
    made = ops.SubtilesInShared(
        result=op.result,
        shared=tuple(ring.shared_of(v.type) for v in op.result if isinstance(v.type, Tile)),
        offsets=ring.offsets[0],
        parts=parts,
        state=op.state,
        full=ring.full,
        empty=ring.empty,
        pingpong_index=op.pingpong_index,
        num_pingpong=op.num_pingpong,
        loc=op.loc,
    )
    b.add(made)


def released_unmet(part: Op) -> set[Value]:
    """Return the pipelines of stages that a partition releases after the wait without an op between
    by which all threads of a warp have passed the wait: an MMA, or a read of the stage. The thread
    that issues MMAs in tensor memory is alone.
    """
    if isinstance(part, Partition) and part.role == "mma":
        return set()
    return {ring for op in walk((part,)) for inner in regions(op) for ring in _unmet(inner)}


def _unmet(region: Region) -> set[Value]:
    held: dict[Value, Value] = {}
    found: set[Value] = set()
    for op in region:
        match op:
            case ops.ConsumerWait():
                held[op.result] = op.ring
            case Contract():
                held.clear()
            case ops.SlotElements() | ops.SlotValues():
                held.pop(op.slot, None)
            case ops.ScalesToSlot():
                held.clear()
            case ops.ConsumerRelease() if op.slot in held:
                found.add(held[op.slot])
            case _:
                pass
    return found


THREADS = 128


@dataclass(frozen=True)
class Producers:
    """`tensors` of a pipeline by the index in the kernel's body of the partition that copies them;
    `by_threads` are the TMA-incompatible ones.
    """

    tensors: Mapping[Value, Mapping[int, Sequence[str]]]
    by_threads: frozenset[str]
    stores: Mapping[Value, int]
    """The number of warpgroups that write transformed operands, by the pipeline."""

    @staticmethod
    def of(kernel: Kernel) -> Producers:
        found: dict[Value, dict[int, list[str]]] = {}
        rings: dict[Value, Value] = {}
        stores: dict[Value, int] = {}
        for place, op in enumerate(kernel.body):
            for inner in walk(op.body) if isinstance(op, Partition) else ():
                if isinstance(inner, ops.ProducerAcquire):
                    rings[inner.result] = inner.ring
                elif isinstance(inner, ops.LoadToSlot):
                    held = found.setdefault(rings[inner.slot], {})
                    held.setdefault(place, []).append(inner.tensor.name)
                elif isinstance(inner, ops.StoreToSlot) and isinstance(op, Partition):
                    stores[rings[inner.slot]] = op.num_warpgroups
        return Producers(found, frozenset(kernel.unaligned), stores)

    def by_stores(self, ring: Value) -> bool:
        return ring in self.stores

    def arrivals(self, ring: Value) -> int:
        """Count the arrivals per stage: one with bytes if TMA copies, one per thread if threads
        copy or store. A partition fills all stages of a pipeline in one way.
        """
        if ring in self.stores:
            return THREADS * self.stores[ring]
        ways = [self.ways(ring, place) for place in self.tensors[ring]]
        return sum(by_tma + THREADS * by_threads for by_tma, by_threads in ways)

    def ways(self, ring: Value, place: int) -> tuple[bool, bool]:
        """Whether TMA, and whether threads."""
        by_threads = [name in self.by_threads for name in self.tensors[ring][place]]
        return not all(by_threads), any(by_threads)

    def whole_warpgroup(self, place: int) -> bool:
        """Whether a load partition runs with all of its threads, not one elected."""
        rings = [ring for ring, by in self.tensors.items() if place in by]
        return any(self.ways(ring, place)[1] for ring in rings)
