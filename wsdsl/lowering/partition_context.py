"""Where things are for one partition: its shares of tiles, indices along axes, sizes."""

import dataclasses
from collections.abc import Mapping
from itertools import pairwise

from wsdsl.diagnostics import Loc
from wsdsl.ir import ops
from wsdsl.ir.analysis.launch_narrowing import narrowing_of
from wsdsl.ir.op import Kernel, Op, Value, once
from wsdsl.ir.rewriter import definers, walk
from wsdsl.ir.types import I32, Axis, Fragment, Tile
from wsdsl.lowering.axes import axes_of, whole_axes
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.order_barriers import consumer_barrier
from wsdsl.lowering.register_layout import flat_axis, height_of, lanes_of
from wsdsl.lowering.register_tiles import RegisterTile, Shapes, chunk_widths, narrow
from wsdsl.lowering.shared_rows import SharedRows
from wsdsl.lowering.store_panels import stored_as_panels


@once
def narrow_axes(kernel: Kernel) -> set[str]:
    """Column axes of four-byte tiles that are stored through SMEM."""
    found: set[str] = set()
    for op in kernel.of(ops.Store):
        if op.tensor in stored_as_panels(kernel) and op.dtype.bytes == 4:
            found |= {a.name for a in op.axes if a.role == "columns"}
    for op in kernel.of(ops.RenameAxes):
        names = (*zip(op.x.as_tile.axes, op.result.as_tile.axes, strict=True),)
        found |= {b for a, b in names if a in found} | {a for a, b in names if b in found}
    return found


@once
def _cut_already(kernel: Kernel) -> dict[str, tuple[int, ...]]:
    """Widths of the chunks of column axes of tiles that come in parts, or go to other CTAs."""
    axes, narrow, found = axes_of(kernel), narrow_axes(kernel), dict[str, tuple[int, ...]]()
    for op in kernel.of(ops.SubtilesInShared, ops.ClusterReduce, ops.Contract):
        if isinstance(op, ops.SubtilesInShared):
            tiles = [v.type for v in op.result if isinstance(v.type, Tile)]
            names = (name for tile in tiles for name in tile.axes if len(tile.axes) == 2)
            found |= {name: op.parts for name in names if axes[name].role == "columns"}
        elif isinstance(op, ops.ClusterReduce):
            found |= _cut_to_slices(op, axes, narrow)
        elif op.depth:
            found |= _cut_to_depths(op, axes, narrow)
    return found


def _cut_to_depths(
    op: ops.Contract, axes: Mapping[str, Axis], narrow: set[str]
) -> dict[str, tuple[int, ...]]:
    """Return the chunks of a transformed operand, which end where an MMA of a part of it does."""
    (name,), computed = op.summed, any(isinstance(tile, Tile) for tile in op.tiles)
    if not computed or axes[name].role != "columns":
        return {}
    bounds = (0, op.depth[0], op.depth[1], axes[name].size)
    sizes = (end - begin for begin, end in pairwise(bounds))
    return {name: tuple(w for n in sizes for w in chunk_widths(n, name in narrow))}


def _cut_to_slices(
    op: ops.ClusterReduce, axes: Mapping[str, Axis], narrow: set[str]
) -> dict[str, tuple[int, ...]]:
    """Sums are cut where the slices are that go to different CTAs."""
    found: dict[str, tuple[int, ...]] = {}
    for sum, own in zip(op.sums, op.result, strict=True):
        for whole, part in zip(sum.as_tile.axes, own.as_tile.axes, strict=True):
            if whole != part:
                widths = chunk_widths(axes[part].size, part in narrow)
                found[whole] = widths * op.sharing
    return found


class PartitionContext:
    """Compute warpgroups share the row axes, or the column axes: warpgroup g has [g * size / n, …)
    of a tile's.
    """

    def __init__(self, kernel: Kernel, partition: ops.Partition, builder: Builder) -> None:
        self.kernel, self.builder = kernel, builder
        groups = partition.num_warpgroups if partition.share == "columns" else 1
        height = height_of(kernel)
        together = max((len(op.x) for op in kernel.of(ops.ClusterAllgather)), default=1)
        sharing = height, groups, partition.num_agents // groups, together
        self.shared_rows = SharedRows(builder, self.sync, *sharing)
        self.static = dict(kernel.sizes)
        found = narrowing_of(kernel)
        self.narrower = found and found.result
        """By how much the tiles of a launch are narrower, where launches differ."""
        self.partition, self.num_warpgroups = partition, partition.num_warpgroups
        self.made = definers(partition.body)
        self.in_order = partition.in_order
        """Whether what threads load now may come no earlier."""
        self.axes, narrow = axes_of(kernel), narrow_axes(kernel)
        cut = _cut_already(kernel)
        share = partition.share
        consumers, lanes = partition.num_agents, lanes_of(kernel)
        flat = flat_axis(kernel)
        together = (*kernel.of(ops.Reduce), *kernel.of(ops.ClusterAllgather))
        self.sharing = {op.axis: op.ctas for op in together if op.ctas > 1}
        """The number of CTAs of a cluster by the axis that they reduce together, a tile each."""
        in_tensors = kernel.target.has_tensor_memory and bool(kernel.of(ops.Contract))
        if in_tensors and partition.role != "compute":
            in_tensors = any(isinstance(op, ops.StoreInTensor) for op in walk(partition.body))
        how = narrow, cut, lanes, flat, height, in_tensors
        self.shapes = Shapes(self.axes, consumers, share, *how)
        self.shares: dict[str, Value] = {}
        self.tiles: dict[str, ops.AxisAt] = {}
        """The current one of each axis: where it begins, and which elements it has."""
        self.read: list[tuple[Value, Value]] = []
        """Barriers and states of stages that have been read: arrivals follow the next fence."""

    def begin_whole(self) -> None:
        """Begin the axes of dimensions that are taken whole, at the start of the partition: it may
        compute along one without a load.
        """
        for name in whole_axes(self.kernel):
            axis = Value(name, self.axes[name])
            self.begin_axis(ops.AxisAt(result=axis, start=self.builder.integer(0)))

    def find_shares(self) -> None:
        """At the start of the partition: which rows or columns are this warpgroup's."""
        b = self.builder
        self.warpgroup = b.integer(0) if self.num_warpgroups == 1 else b.warpgroup()
        known: dict[int, Value] = {}
        for name, axis in self.axes.items():
            if axis.role == self.shapes.share:
                each = self.shapes.own(name)
                if each not in known:
                    known[each] = b.times(self.warpgroup, each, "share")
                self.shares[name] = known[each]

    def publish(self, loc: Loc | None, wide: bool = False, everywhere: bool = False) -> None:
        """Order the writes of threads to SMEM before TMA copies, and release the stages that the
        threads have read; `everywhere`: order their reads of GMEM, too.
        """
        self.builder.loc = loc
        self.builder.fence_smem(everywhere)
        self.sync(loc, wide)
        for barriers, state in self.read:
            self.builder.arrive(barriers, state, each_thread=True)
        self.read = []

    def sync(self, loc: Loc | None, wide: bool = True) -> None:
        """Synchronize all warps of the partition, or the threads of each warp."""
        self.builder.loc = loc
        barrier = consumer_barrier(self.kernel, self.partition) if wide else None
        self.builder.sync_threads(barrier, self.num_warpgroups)

    def give_back(self, loc: Loc | None) -> None:
        """Release the stages that have been read, where no store follows."""
        if self.read:
            self.publish(loc)

    def compute(self, pieces: RegisterTile, op: ops.Materialize) -> None:
        before, self.in_order = self.in_order, self.in_order or op.in_order
        for i in range(pieces.shape.blocks - op.but_last):
            for j in range(len(pieces.shape.widths)):
                pieces.get(i, j)
        self.in_order = before

    def begin_axis(self, op: Op) -> None:
        assert isinstance(op, ops.AxisAt)
        self.tiles[op.result.as_axis.name] = op

    def is_full(self, axis: str) -> bool:
        """Whether its tiles have all of their elements."""
        static, own = self.static.get(self.axes[axis].dim), self.tiles[axis]
        # The last ones of a cluster may have none of a dimension that has whole tiles.
        size = self.axes[axis].size * self.sharing.get(axis, 1)
        even = static is not None and static % size == 0 and not own.shifted
        return (even or own.inside) and not own.is_clipped

    def is_whole(self, axis: str) -> Value:
        """Whether the current tile has all of its elements."""
        b, own = self.builder, self.tiles[axis]
        end = b.plus(own.start, b.integer(self.axes[axis].size))
        made = b.map("le", end, self.stop(axis), wish="whole")
        if own.first is not None:
            made = b.map("and", made, b.map("ge", own.start, own.first), wish="whole")
        return made

    def is_inside(self, axis: str, indices: Value) -> Value:
        """Whether elements at these indices are the tile's."""
        b = self.builder
        made = b.map("lt", indices, self.stop(axis), wish="inside")
        if (first := self.tiles[axis].first) is not None:
            made = b.map("and", made, b.map("ge", indices, first, wish="behind"), wish="inside")
        return made

    def is_last(self, axis: str, size: int, i: int, j: int) -> Value:
        """Whether elements are the last ones of a block of `size`."""
        b, indices = self.builder, self.indices(axis).get(i, j)
        last = self._is_in_block(indices, size, size - 1, "last")
        if self.is_full(axis) and self.static.get(self.axes[axis].dim, 1) % size == 0:
            return last
        end = b.map("sub", self.stop(axis), b.integer(1), wish="end")
        return b.map("or", last, b.map("eq", indices, end), wish="last")

    def is_first(self, axis: str, size: int, i: int, j: int) -> Value:
        return self._is_in_block(self.indices(axis).get(i, j), size, 0, "first")

    def _is_in_block(self, indices: Value, size: int, place: int, wish: str) -> Value:
        """Whether elements are at this place of their blocks."""
        rest = self.builder.map("mod", indices, self.builder.integer(size), wish="rest")
        return self.builder.map("eq", rest, self.builder.integer(place), wish=wish)

    def stop(self, axis: str) -> Value:
        """Return the end of the elements that its tiles may have."""
        return self.tiles[axis].stop or self.size(self.axes[axis])

    def size(self, axis: Axis) -> Value:
        return self.builder.size(axis.dim, self.static.get(axis.dim))

    def row_in_tile(self, axis: str, block: int) -> Value:
        """The row of the CTA's tile at which a row block of this warpgroup begins."""
        shape = self.shapes.of((axis,))
        first = shape.first_row(block) if shape.interleaves else self.shapes.height * block
        return self._in_tile(axis, first, "row")

    def column_in_tile(self, axis: str, chunk: int) -> Value:
        """The column of the CTA's tile at which a chunk of this warpgroup begins."""
        return self._in_tile(axis, self.shapes.of((axis,)).first_column(chunk), "column")

    def _in_tile(self, axis: str, at: int, wish: str) -> Value:
        if axis not in self.shares:
            return self.builder.integer(at)
        return self.builder.plus(self.shares[axis], at, wish)

    def start(self, axis: str, i: int, j: int) -> Value:
        """Return the index, in its dimension, of the first element of fragment (i, j) along an
        axis.
        """
        b, shape = self.builder, self.shapes.of((axis,))
        base, wish = self.tiles[axis].start, "row" if shape.rows else "column"
        if axis in self.shares:
            base = b.plus(base, self.shares[axis], wish)
        return b.plus(base, shape.first_row(i) if shape.rows else shape.first_column(j), wish)

    def indices(self, axis: str) -> RegisterTile:
        """The index of each element along an axis."""
        shape = self.shapes.of((axis,))

        def iota(i: int, j: int) -> Value:
            if axis == self.shapes.flat:
                return self._flat_indices(axis, i)
            kind = shape.piece(I32, j)
            if isinstance(kind, Tile):
                return self.start(axis, i, j)
            start = self.start(axis, i, j)
            return self.builder.make(
                ops.Iota, f"{axis}_index", kind, start=start, apart=shape.apart
            )

        return RegisterTile(shape, iota)

    def _flat_indices(self, axis: str, i: int) -> Value:
        """Return the indices of a fragment whose rows are consecutive elements."""
        b, shape = self.builder, self.shapes.of((axis,))
        kind = shape.piece(I32, 0)
        assert isinstance(kind, Fragment)
        rows = b.make(ops.Iota, "line", dataclasses.replace(kind, columns=1), start=b.integer(0))
        column = dataclasses.replace(kind, rows=1)
        columns = b.make(ops.Iota, "column", column, start=self.start(axis, i, 0))
        before = b.map("mul", rows, b.integer(kind.columns), wish="before")
        return b.map("add", before, columns, type=kind, wish=f"{axis}_index")

    def within(self, axis: str, size: int) -> bool:
        """Whether no fragment crosses a multiple of `size`: all begin at multiples of the widest,
        which divides it. Fragments of slices may cross it, and so may those of a part of a
        dimension.
        """
        return not self.tiles[axis].shifted and self.shapes.within(axis, size)

    def block(self, op: ops.Block) -> None:
        args = self.tiles[op.axis.as_axis.name].start, self.builder.integer(op.size)
        self.builder.add(ops.Map(result=op.result, fn="floordiv", args=args, loc=op.loc))

    def blocks(self, axis: str, size: int) -> RegisterTile | None:
        """Return the index of each element divided by `size`: one number per fragment, if fragments
        do not cross its multiples, and one for all if tiles do not."""
        b, shape = self.builder, self.shapes.of((axis,))
        if not self.within(axis, size):
            return None
        whole: list[Value] = []

        def block(i: int, j: int) -> Value:
            if size % self.axes[axis].size == 0:
                if not whole:
                    start = self.tiles[axis].start
                    whole.append(b.map("floordiv", start, b.integer(size), wish="block"))
                return whole[0]
            return b.map("floordiv", self.start(axis, i, j), b.integer(size), wish="block")

        return narrow(shape, I32, b, block)

    def places(self, axis: str, every: int, i: int, j: int) -> Value:
        """Return the block of `every` elements, counted from the start of the tile, of each element
        of fragment (i, j): a number if all are in one block.
        """
        b, shape, size = self.builder, self.shapes.of((axis,)), self.axes[axis].size
        rows = bool(shape.rows)
        if every > 1 and every % size == 0:
            return b.integer(0)
        alone = every == 1 or size % every == 0
        first = self.row_in_tile(axis, i) if rows else self.column_in_tile(axis, j)
        if not alone:
            first = b.plus(self.tiles[axis].start, first)
        index, kind = first, shape.piece(I32, j)
        if isinstance(kind, Fragment) and (every == 1 or not self.within(axis, every)):
            index = b.make(ops.Iota, f"{axis}_place", kind, start=first, apart=shape.apart)
        if every > 1:
            index = b.quotient(index, every)
        if not alone:
            before = b.quotient(self.tiles[axis].start, every)
            index = b.map("sub", index, before, wish="block")
        return index

    def end(self, op: ops.End) -> None:
        b, axis = self.builder, op.axis.as_axis
        end = b.plus(self.tiles[axis.name].start, axis.size)
        b.add(ops.Map(result=op.result, fn="min", args=(end, self.stop(axis.name)), loc=op.loc))
