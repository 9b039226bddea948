"""Stores of the compute side to global memory: through SMEM, from where TMA copies, or threads
where TMA does not take the tensor; or direct."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TypeGuard

from wsdsl.diagnostics import Loc
from wsdsl.ir.barrier_ops import AllocateBarriers, NamedBarrierSync, SyncWarp
from wsdsl.ir.memory_ops import (
    AllocateShared,
    MakeTensorMap,
    StoreGlobal,
    StoreShared,
    ThreadStore,
    TmaStore,
    TmaStoreCommit,
    TmaStoreWait,
)
from wsdsl.ir.op import Kernel, Op, Region, Value, regions
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.target import SMEM_BYTES, line_swizzle
from wsdsl.ir.tile_ops import Cast, Full, Map, Store
from wsdsl.ir.types import (
    BOOL,
    I32,
    Axis,
    Barriers,
    DType,
    Fragment,
    Shared,
    Tensor,
    TensorMap,
    Tile,
)
from wsdsl.ir.walk import walk
from wsdsl.lowering.footprint import STAGING_BUFFERS, STAGING_BYTES
from wsdsl.lowering.pieces import Shape
from wsdsl.lowering.reads import Find, entry_of, vector_of
from wsdsl.lowering.side import Side, through_shared
from wsdsl.lowering.stored_again import stored_again
from wsdsl.lowering.turns import meeting

WARP_ROWS = 16
UNIT = 16
"""Bytes: what a panel's lines are multiples of."""
LEAST_BYTES = 4096
"""A warp's quarter of an item begins at a multiple of 1024 bytes."""


def _buffers(kernel: Kernel) -> int:
    """As many as the slots leave room for."""
    consumers = sum(
        op.num_warpgroups
        for op in kernel.body
        if isinstance(op, Partition) and op.role == "compute"
    )
    used = 0
    for op in kernel.body:
        if isinstance(op, AllocateShared) and isinstance(op.result.type, Shared):
            used += op.result.type.bytes * op.result.type.num
        elif isinstance(op, AllocateBarriers) and isinstance(op.result.type, Barriers):
            used += 8 * op.result.type.num
    left = SMEM_BYTES - used
    return max(1, min(STAGING_BUFFERS, left // (STAGING_BYTES * consumers)))


@dataclass(frozen=True)
class _Panel:
    """What a warp copies of a piece: the `box`, of which warps follow each other along `row_dim`,
    and `lines` of `line` bytes in SMEM. They are columns if it is `transposed`; `joined`: those of
    the four warps are lines of 128 bytes that all of them write, not each its own of 32.
    """

    box: tuple[int, ...]
    row_dim: int
    lines: int
    line: int
    transposed: bool
    joined: bool

    @property
    def bytes(self) -> int:
        return self.lines * self.line

    @property
    def swizzle(self) -> str:
        return line_swizzle(self.line)


class Stores:
    """A partition's stores. Those through SMEM take turns on a warpgroup's buffers, or on groups of
    them: the row blocks of narrow chunks are given to TMA together, behind one fence. A group is
    written again once the store that read it last is over; elements of a tensor, once all are.
    """

    def __init__(
        self, kernel: Kernel, partition: Partition, side: Side, declarations: list[Op]
    ) -> None:
        self.kernel, self.side, self.declarations = kernel, side, declarations
        self.staging: Value | None = None
        self.items: tuple[Value, ...] = ()
        self.maps: dict[tuple[Value, tuple[int, ...], str], Value] = {}
        self.turn = 0
        self.partition = partition
        stores = [op for op in walk(partition.body) if self._through_smem(op)]
        self.again = stored_again(partition.body)
        self.bytes, self.buffers, self.together = STAGING_BYTES, _buffers(kernel), 1
        self.joins = any(self._panel(op, w).joined for op in stores for w in self._shape(op).widths)
        """Then no part of an item is one warp's own: another store is written where it was read."""
        blocks = {self._shape(op).blocks for op in stores}
        narrow = max([LEAST_BYTES, *(self._item_bytes(op) for op in stores)])
        smaller = self.buffers * STAGING_BYTES // narrow
        if len(blocks) == 1 and smaller >= 2 * max(blocks) > 2:
            self.bytes, self.buffers, self.together = narrow, smaller, max(blocks)
        self.groups = self.buffers // self.together
        counts = self._counts(partition.body)
        self.even = all(n % self.groups == 0 for n in counts)
        self.any = any(counts)
        self.any_by_tma = any(self._by_tma(op) for op in stores)

    def _through_smem(self, op: Op) -> TypeGuard[Store]:
        """What threads copy consists of lines of whole units; else they place it."""
        if not isinstance(op, Store) or not through_shared(self.kernel, op):
            return False
        pairs = ((o, width) for o in self._stores_of(op.tensor) for width in self._shape(o).widths)
        return self._by_tma(op) or all(self._panel(*pair).line % UNIT == 0 for pair in pairs)

    def _stores_of(self, tensor: Value) -> list[Store]:
        body = walk(self.partition.body)
        return [op for op in body if isinstance(op, Store) and op.tensor == tensor]

    def _by_tma(self, op: Store) -> bool:
        return op.tensor.name not in self.kernel.unaligned

    def _item_bytes(self, op: Store) -> int:
        """Of the widest piece."""
        size = 4 * self._panel(op, max(self._shape(op).widths)).bytes
        return -(-size // LEAST_BYTES) * LEAST_BYTES

    def _counts(self, region: Region) -> list[int]:
        """Groups of stores through SMEM, by run: where one has a number that the groups of buffers
        do not divide, the next run begins with one that was used lately, and every run must begin
        by waiting for all.
        """
        own = 0
        found: list[int] = []
        for op in region:
            if self._through_smem(op):
                shape = self._shape(op)
                own += shape.blocks // self.together * len(shape.widths)
            inner = [n for body in regions(op) for n in self._counts(body)]
            if any(inner):
                found += [*inner, own]
                own = 0
        return [*found, own]

    def _shape(self, op: Store) -> Shape:
        return self.side.shapes.of(tuple(v.type.name for v in op.index if isinstance(v.type, Axis)))

    def begin(self) -> None:
        """At the start of the partition: which buffers are this warpgroup's."""
        if not self.any:
            return
        b, side = self.side.builder, self.side
        num = self.buffers * side.num_warpgroups
        self.staging = b.value("staging", Shared(self.bytes, num))
        self.declarations.append(AllocateShared(result=self.staging, label="staging"))
        assert side.warpgroup is not None
        first = b.times(side.warpgroup, self.buffers, "item")
        self.items = tuple(b.plus(first, i, "item") for i in range(self.buffers))

    def finish(self) -> None:
        """SMEM must outlive the copies that read it."""
        if self.any_by_tma:
            self.side.builder.add(TmaStoreWait(pending=0, read=False))

    def boundary(self, op: Op) -> None:
        """Around an op with regions: a run ends here where they store, and no slot is given back in
        them that was read outside.
        """
        if any(n for body in regions(op) for n in self._counts(body)):
            self.turn = 0
        self.side.give_back(op.loc)

    def store(self, op: Store, find: Find) -> None:
        assert isinstance(op.tensor.type, Tensor)
        value, dtype = find(op.value), op.tensor.type.dtype
        through_smem = self._through_smem(op)
        axes = tuple(v.type.name for v in op.index if isinstance(v.type, Axis))
        gathered = [find(v) for v in op.index if not isinstance(v.type, Axis)]
        shape = self.side.shapes.of(axes)
        for other in (value, *gathered):
            shape = _cover(shape, other.shape)
        if op.tensor in self.again:
            self._behind(op, through_smem)
        # All rows of a column of chunks, so that what depends on columns alone is not held longer.
        waiting: list[TmaStore | ThreadStore] = []
        for i, j in sorted(shape.places(), key=lambda place: place[1]):
            piece = self._converted(value.get(i, j), dtype, op)
            if not through_smem:
                self._direct(op, find, i, j, piece)
                continue
            waiting.append(self._to_smem(op, shape, i, j, piece, len(waiting)))
            if len(waiting) == self.together:
                self._copy(waiting)
                waiting = []

    def _behind(self, op: Store, through_smem: bool) -> None:
        """Until stores before are over: a warp waits for its own copies. All meet where another
        warp may have stored the elements: in a tile of another shape, or where threads place them.
        """
        b = self.side.builder
        if self.any_by_tma:
            b.add(TmaStoreWait(pending=0, read=False, loc=op.loc))
        shapes = ((self._shape(o), _roles(o)) for o in self._stores_of(op.tensor))
        alike = {(shape.blocks, shape.widths, roles) for shape, roles in shapes}
        if through_smem and len(alike) == 1:
            b.add(SyncWarp(loc=op.loc))
        else:
            b.add(self._meet(op.loc))

    def _converted(self, value: Value, dtype: DType, op: Store) -> Value:
        assert isinstance(value.type, (Fragment, Tile))
        if value.type.dtype == dtype:
            return value
        kind = dataclasses.replace(value.type, dtype=dtype)
        made = Cast(
            result=self.side.builder.value(f"{op.tensor.name.lower()}_out", kind),
            x=value,
            saturate=value.type.dtype.is_integer and dtype.is_integer,
            loc=op.loc,
        )
        return self.side.builder.add(made).result

    def _direct(self, op: Store, find: Find, i: int, j: int, value: Value) -> None:
        side, b = self.side, self.side.builder
        index = tuple(self._place(v, op, find, i, j) for v in op.index)
        kinds = [v.type for v in (*index, value) if isinstance(v.type, Fragment)]
        by_rows = side.shapes.share == "rows"
        split = any((kind.rows if by_rows else kind.columns) > 1 for kind in kinds)
        pred = None
        if not split and side.num_warpgroups > 1:
            assert side.warpgroup is not None
            pred = b.map("eq", side.warpgroup, b.integer(0), wish="first")
        b.add(
            StoreGlobal(
                tensor=op.tensor,
                index=index,
                value=value,
                vector=1 if op.accumulate else vector_of(op.tensor, op.index, side),
                accumulate=op.accumulate,
                pred=pred,
                loc=op.loc,
            )
        )

    def _place(self, entry: Value, op: Store, find: Find, i: int, j: int) -> Value:
        """Where elements go along a dimension. Along an axis that only gives their places they end
        with it: what lies beyond goes to -1, which is in no tensor.
        """
        side, b = self.side, self.side.builder
        place = entry_of(entry, side, find).get(i, j)
        if not isinstance(entry.type, Tile):
            return place
        for name in entry.type.axes:
            axis = side.axes[name]
            known = side.static.get(axis.dim)
            checked = any(isinstance(v.type, Axis) and v.type.name == name for v in op.index)
            if checked or (known is not None and known % axis.size == 0):
                continue
            assert isinstance(place.type, Fragment)
            if place.type.dtype != I32:
                kind = dataclasses.replace(place.type, dtype=I32)
                place = b.add(Cast(result=b.value("place", kind), x=place, loc=op.loc)).result
            assert isinstance(place.type, Fragment)
            indices = side.indices(name).get(i, j)
            assert isinstance(indices.type, Fragment)
            kind = dataclasses.replace(indices.type, dtype=BOOL)
            inside = b.map("lt", indices, side.size(axis), type=kind, wish="inside")
            args = inside, place, b.integer(-1)
            place = b.map("where", *args, type=place.type, wish="place")
        return place

    def _panel(self, op: Store, width: int) -> _Panel:
        assert isinstance(op.tensor.type, Tensor)
        last, dtype = op.index[-1].type, op.tensor.type.dtype
        transposed = isinstance(last, Axis) and last.role == "rows"
        joined = transposed and dtype.bits == 16 and width % 32 == 0
        # Of joined panels' lines, which have all 64 rows, each warp copies a quarter.
        rows, columns = (4 * WARP_ROWS, width // 4) if joined else (WARP_ROWS, width)
        roles = _roles(op)
        box = tuple({"rows": rows, "columns": columns}.get(role or "", 1) for role in roles)
        lines, row_dim = (
            columns if transposed else rows,
            roles.index("columns" if joined else "rows"),
        )
        return _Panel(box, row_dim, lines, box[-1] * dtype.bytes, transposed, joined)

    def _to_smem(
        self, op: Store, shape: Shape, i: int, j: int, value: Value, place: int
    ) -> TmaStore | ThreadStore:
        """Write a piece to its `place` in the next group; returns the copy that is to follow."""
        side, b = self.side, self.side.builder
        value = self._full_size(value, shape.widths[j])
        panel = self._panel(op, shape.widths[j])
        coordinates = tuple(
            side.start(v.type.name, i, j) if isinstance(v.type, Axis) else v for v in op.index
        )
        item = self.items[self.turn % self.groups * self.together + place]
        assert self.staging is not None
        if place == 0:
            if self.any_by_tma:
                pending = self.groups - 1 if self.turn or self.even else 0
                b.add(TmaStoreWait(pending=pending, loc=op.loc))
            b.add(self._meet(op.loc) if self.joins else SyncWarp(loc=op.loc))
        b.add(
            StoreShared(
                value=value,
                shared=self.staging,
                item=item,
                swizzle=panel.swizzle,
                transposed=panel.transposed,
                joined=panel.joined,
                loc=op.loc,
            )
        )
        if not self._by_tma(op):
            return ThreadStore(
                tensor=op.tensor,
                coordinates=coordinates,
                box=panel.box,
                swizzle=panel.swizzle,
                row_dim=panel.row_dim,
                shared=self.staging,
                item=item,
                apart=panel.bytes if panel.joined else 0,
                accumulate=op.accumulate,
                loc=op.loc,
            )
        return TmaStore(
            map=self._map(op.tensor, panel.box, panel.swizzle),
            coordinates=coordinates,
            row_dim=panel.row_dim,
            shared=self.staging,
            item=item,
            apart=panel.bytes if panel.joined else 0,
            accumulate=op.accumulate,
            loc=op.loc,
        )

    def _meet(self, loc: Loc | None) -> NamedBarrierSync:
        """Of all warps of the partition, which has one barrier; a panel is of one warpgroup."""
        barrier, num = meeting(self.kernel, self.partition), self.side.num_warpgroups
        return NamedBarrierSync(barrier=barrier, num_warpgroups=num, loc=loc)

    def _copy(self, copies: list[TmaStore | ThreadStore]) -> None:
        """A group is committed even if threads copy it: which is over is counted by groups."""
        b, loc = self.side.builder, copies[0].loc
        meet = self._meet(loc) if any(copy.apart for copy in copies) else SyncWarp(loc=loc)
        if self.side.read or any(isinstance(copy, TmaStore) for copy in copies):
            self.side.publish(loc, meet)
        else:
            b.add(meet)
        for copy in copies:
            b.add(copy)
        if self.any_by_tma:
            b.add(TmaStoreCommit(loc=loc))
        self.turn += 1

    def _full_size(self, value: Value, width: int) -> Value:
        """A value that is the same in all rows or columns, spread out."""
        assert isinstance(value.type, (Fragment, Tile))
        kind = Fragment(value.type.dtype, 64, width)
        if value.type == kind:
            return value
        b = self.side.builder
        if isinstance(value.type, Tile):
            return b.add(Full(result=b.value("spread", kind), value=value)).result
        every = b.value("every", Fragment(BOOL, 64, width))
        b.add(Full(result=every, value=b.flag(True)))
        made = Map(result=b.value("spread", kind), fn="where", args=(every, value, value))
        return b.add(made).result

    def _map(self, tensor: Value, box: tuple[int, ...], swizzle: str) -> Value:
        key = (tensor, box, swizzle)
        if key not in self.maps:
            name = f"{tensor.name.lower()}_map"
            self.maps[key] = self.side.builder.value(name, TensorMap())
            self.declarations.append(
                MakeTensorMap(result=self.maps[key], tensor=tensor, box=box, swizzle=swizzle)
            )
        return self.maps[key]


def _roles(op: Store) -> tuple[str | None, ...]:
    return tuple(v.type.role if isinstance(v.type, Axis) else None for v in op.index)


def _cover(a: Shape, b: Shape) -> Shape:
    """The shape with the axes of both."""
    return Shape(
        a.rows or b.rows,
        a.columns or b.columns,
        max(a.blocks, b.blocks),
        max(a.widths, b.widths, key=sum),
    )
