"""Stores of the compute context to global memory: through SMEM, from where TMA copies, or threads
where TMA does not take the tensor; or direct."""

from typing import Any, TypeGuard

from wsdsl.diagnostics import Loc
from wsdsl.ir import ops
from wsdsl.ir.analysis.tile_widths import WIDTH_STEP
from wsdsl.ir.op import Kernel, Op, Region, Value, regions, walk
from wsdsl.ir.types import Axis, DType, Fragment, Shared
from wsdsl.lowering.direct_stores import even_blocks, store_directly
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.placed_ring import TensorMaps
from wsdsl.lowering.raster import work_loop
from wsdsl.lowering.reads import Find
from wsdsl.lowering.register_tiles import Shape, spread_out
from wsdsl.lowering.smem_allocations import staging_bytes
from wsdsl.lowering.smem_privatization import Counters
from wsdsl.lowering.smem_transpose import TurnedTiles
from wsdsl.lowering.store_hazards import read_again, stored_again, stored_in
from wsdsl.lowering.store_panels import (
    LEAST_BYTES,
    item_bytes,
    panel_of,
    roles_of,
    shape_of,
    staged_tensors,
)


class Stores:
    """The stores of a partition. Stores through SMEM alternate between the buffers of a warpgroup,
    or groups of them: TMA copies the row blocks of narrow chunks together, after one fence. A group
    is written again after the last store that read it is complete; elements of a tensor are written
    again, and read, after all are complete.
    """

    def __init__(
        self,
        kernel: Kernel,
        partition: ops.Partition,
        context: PartitionContext,
    ) -> None:
        self.kernel, self.context = kernel, context
        self.staging: Value | None = None
        self.items: tuple[Value, ...] = ()
        self.maps = TensorMaps(context.builder)
        self.group = 0
        self.partition = partition
        self.turned = TurnedTiles(context)
        self.staged = staged_tensors(kernel, partition.body, context.shapes)
        every = [op for op in walk(partition.body) if isinstance(op, ops.Store)]
        self.stores = [op for op in every if self._is_staged(op)]
        self.counters = Counters(kernel, context, every)
        self.again = stored_again(partition.body, once=_has_one_item(kernel, partition.body))
        self.over: set[Value] = set()
        """Tensors whose stores have been waited for since."""
        self.read_again = read_again(partition.body)
        loaded = {op.tensor for op in walk(partition.body) if isinstance(op, ops.Load)}
        self.read = loaded & {*kernel.params}
        """Tensors whose elements threads have read before they are stored. Elements that fragments
        of a tile share have a separate order.
        """
        self.read_before = set[Value]()
        """Tensors that loops have read which are complete."""
        each = staging_bytes(kernel)
        self.bytes, self.buffers, self.together = each, partition.staging, 1
        self.joins = any(map(self._joined, self.stores))
        """Then no part of an item is one warp's own: another store is written where it was read."""
        blocks = {self._copies(self._shape(op)) for op in self.stores}
        narrow = max([LEAST_BYTES, *(item_bytes(op, self._shape(op)) for op in self.stores)])
        smaller = self.buffers * each // narrow
        if len(blocks) == 1 and smaller >= 2 * max(blocks) > 2:
            self.bytes, self.buffers, self.together = narrow, smaller, max(blocks)
        self.groups = self.buffers // self.together
        self.even = all(n % self.groups == 0 for n in self._counts(partition.body))
        self.any_by_tma = any(map(self._by_tma, self.stores))

    def _is_staged(self, op: Op) -> TypeGuard[ops.Store]:
        return isinstance(op, ops.Store) and op.tensor in self.staged

    def _by_tma(self, op: ops.Store) -> bool:
        return op.tensor.name not in self.kernel.unaligned

    def _counts(self, region: Region) -> list[int]:
        """Groups of stores through SMEM, by run: where one has a number that the groups of buffers
        do not divide, the next run begins with one that was used lately, and every run must begin
        by waiting for all.
        """
        own = 0
        found: list[int] = []
        for op in region if self.stores else ():
            if self._is_staged(op):
                shape = self._shape(op)
                own += self._copies(shape) // self.together * len(shape.widths)
            if any(inner := [n for body in regions(op) for n in self._counts(body)]):
                found += [*inner, own]
                own = 0
        return [*found, own]

    def _copies(self, shape: Shape) -> int:
        """Of a chunk's columns: blocks whose rows lie between each other's are copied together."""
        return shape.blocks * 16 // shape.apart

    def _shape(self, op: ops.Store) -> Shape:
        return shape_of(op, self.context.shapes)

    def begin(self) -> None:
        """At the start of the partition: which buffers are this warpgroup's."""
        self.counters.begin()
        if not self.stores:
            return
        b, context = self.context.builder, self.context
        num = self.buffers * context.num_warpgroups
        self.staging = b.shared("staging", Shared(self.bytes, num), label="staging")
        first = b.times(context.warpgroup, self.buffers, "item")
        self.items = tuple(b.plus(first, i, "item") for i in range(self.buffers))

    def finish(self) -> None:
        """SMEM must outlive the copies that read it."""
        self.counters.finish()
        if self.any_by_tma:
            self.context.builder.add(ops.TmaStoreWait(pending=0, read=False))

    def boundary(self, op: Op) -> None:
        """End a run around an op whose regions store, and release all stages that were read, which
        the regions do not release.
        """
        if self.staged and self.staged & stored_in(op):
            self.group = 0
        self.over = set()
        self.context.give_back(op.loc)
        self.settle(op.loc)

    def settle(self, loc: Loc | None) -> None:
        """Wait, around a region and at its end, until threads have read the exchanges in SMEM."""
        self.context.shared_rows.settle(loc)
        self.turned.settle(loc)

    def store(self, op: ops.Store, find: Find) -> None:
        value, dtype = find(op.value), op.dtype
        staged = self._is_staged(op)
        axes = tuple(axis.name for axis in op.axes)
        gathered = [find(v) for v in op.index if not isinstance(v.type, Axis)]
        shape = self.context.shapes.of(axes)
        for other in (value, *gathered):
            shape = Shape(
                shape.rows or other.shape.rows,
                shape.columns or other.shape.columns,
                max(shape.blocks, other.shape.blocks),
                max(shape.widths, other.shape.widths, key=sum),
                shape.lanes,
                shape.height,
                max(shape.apart, other.shape.apart),
            )
        if op.tensor in self.again - self.over:
            self._behind({op.tensor}, op.loc)
        self.over.discard(op.tensor)
        if self.turned.takes(op):

            def write(far: PartitionContext, place: tuple[int, int], made: Value) -> None:
                store_directly(far, op, find, place, made)

            self.turned.store(op, lambda i, j: self._converted(value.get(i, j), dtype, op), write)
            return
        if op.tensor in self.read and not staged:
            self._behind_reads(shape, op.loc)
        even = None if staged else even_blocks(op, self.context, shape, value.least)
        # All rows of a column of chunks, so that what depends on columns alone is not held longer.
        waiting: list[ops.TmaStore | ops.ThreadStore] = []
        for i, j in sorted(shape.places(), key=lambda place: place[1]):
            if even:
                # A column, once for each block.
                if shape.first_column(j) % even[1] == 0:
                    piece = self._converted(value.least.get(i, j), dtype, op)
                    store_directly(self.context, op, find, (i, j), piece, even)
                continue
            piece = self._converted(value.get(i, j), dtype, op)
            if not staged:
                if j and i == 0 and not op.accumulate and any(v.shape.columns for v in gathered):
                    # Data say whether other columns are other places.
                    self.context.sync(op.loc, wide=False)
                store_directly(self.context, op, find, (i, j), piece, counted=self.counters.counted)
                continue
            copy = self._to_smem(op, shape, i, j, piece, len(waiting))
            waiting += [copy] if copy else []
            if copy and len(waiting) == self.together:
                self._copy(waiting, everywhere=op.tensor in self.read and self._by_tma(op))
                waiting = []

    def begin_loop(self, loop: ops.Loop) -> None:
        """Wait until threads have read, in loops before, the tensors that the loop stores."""
        self.boundary(loop)
        if self.read_before and self.read_before & stored_in(loop):
            self.context.sync(loop.loc)
            self.read_before = set()

    def finish_loop(self, loop: ops.Loop) -> None:
        self.boundary(loop)
        loaded = {op.tensor for op in walk(loop.body) if isinstance(op, ops.Load)}
        self.read_before |= loaded & self.read

    def begin_iteration(self, loop: ops.Loop) -> None:
        """Wait until stores before are complete to tensors that the loop reads."""
        self.over = self.read_again.get(loop.index, set[Value]()) & self.read
        if self.over:
            self._behind(self.over, loop.loc)

    def _behind(self, tensors: set[Value], loc: Loc | None) -> None:
        """Wait until stores before are complete: a warp waits for its copies. All warps synchronize
        if another warp may have stored the elements: in a tile of another shape, or of another
        warp's columns, or at indices that threads compute.
        """
        b = self.context.builder
        if self.any_by_tma:
            b.add(ops.TmaStoreWait(pending=0, read=False, loc=loc))
        self.context.sync(loc, wide=not all(map(self._by_warps, tensors)))

    def _by_warps(self, tensor: Value) -> bool:
        """Whether each warp has elements of its own."""
        stores = [op for op in self.stores if op.tensor == tensor]
        shapes = ((self._shape(o), roles_of(o)) for o in stores)
        alike = {(shape.blocks, shape.widths, roles) for shape, roles in shapes}
        # None of them, if threads store it from registers.
        return len(alike) == 1 and not (tensor in self.read and any(map(self._joined, stores)))

    def _joined(self, op: ops.Store) -> bool:
        shape = self._shape(op)
        return any(panel_of(op, width, shape.apart).joined for width in shape.widths)

    def _behind_reads(self, shape: Shape, loc: Loc | None) -> None:
        """Until threads have read what one of them overwrites: all that hold the same element."""
        by_rows = self.context.shapes.share == "rows"
        if shape.rows is None or not (shape.columns or by_rows or self.context.num_warpgroups == 1):
            self.context.sync(loc)
        elif shape.columns is None:
            self.context.sync(loc, wide=shape.lanes.warps > 1)

    def _converted(self, value: Value, dtype: DType, op: ops.Store) -> Value:
        saturate = op.value.as_tile.dtype.is_integer and dtype.is_integer
        wish = f"{op.tensor.name.lower()}_out"
        return self.context.builder.cast(value, dtype, wish, saturate=saturate, loc=op.loc)

    def _to_smem(
        self, op: ops.Store, shape: Shape, i: int, j: int, value: Value, place: int
    ) -> ops.TmaStore | ops.ThreadStore | None:
        """Write a fragment to its `place` in the next group; return the copy that is to follow,
        with the last of the blocks that it copies.
        """
        context, b = self.context, self.context.builder
        value = spread_out(b, value, Fragment(op.dtype, 64, shape.widths[j]))
        panel, halves = panel_of(op, shape.widths[j], shape.apart), shape.apart // 16
        half = i % halves
        coordinates = tuple(
            context.start(v.type.name, i - half, j) if isinstance(v.type, Axis) else v
            for v in op.index
        )
        item = self.items[self.group % self.groups * self.together + place]
        assert self.staging is not None
        if place == 0 and not half:
            if self.any_by_tma:
                pending = self.groups - 1 if self.group or self.even else 0
                b.add(ops.TmaStoreWait(pending=pending, loc=op.loc))
            context.sync(op.loc, wide=self.joins)
        where = dict[str, Any](shared=self.staging, item=item, loc=op.loc)
        lines = dict[str, Any](transposed=panel.transposed, joined=panel.joined)
        lines |= dict(swizzle=panel.swizzle, half=half + 1 if halves > 1 else 0)
        b.add(ops.StoreShared(value=value, **lines, **where))
        if half < halves - 1:
            if panel.transposed:
                # The halves of a line lie in one panel, and panels are what is followed.
                context.sync(op.loc, wide=False)
            return None
        common = dict[str, Any](coordinates=coordinates, row_dim=panel.row_dim, **where)
        common |= dict(apart=panel.bytes if panel.joined else 0, accumulate=op.accumulate)
        if self._by_tma(op):
            box = panel.box
            if self._is_narrowed(shape, j):
                dim = roles_of(op).index("columns")
                box = tuple(WIDTH_STEP if n == dim else size for n, size in enumerate(box))
                common |= dict(lines=shape.widths[j], line_dim=dim, narrower=context.narrower)
            return ops.TmaStore(map=self.maps.of(op.tensor, box, panel.swizzle), **common)
        return ops.ThreadStore(tensor=op.tensor, box=panel.box, swizzle=panel.swizzle, **common)

    def _is_narrowed(self, shape: Shape, j: int) -> bool:
        """Whether not all launches have all columns of a chunk: the last one."""
        widths = 1 if shape.columns is None else self.context.axes[shape.columns].widths
        return widths > 1 and j == len(shape.widths) - 1

    def _copy(self, copies: list[ops.TmaStore | ops.ThreadStore], everywhere: bool) -> None:
        """Commit a group, even if threads copy it: completion is counted in groups.
        `everywhere`: TMA overwrites in global memory what threads have read there.
        """
        b, loc = self.context.builder, copies[0].loc
        wide = any(copy.apart for copy in copies)
        if self.context.read or any(isinstance(copy, ops.TmaStore) for copy in copies):
            self.context.publish(loc, wide, everywhere)
        else:
            self.context.sync(loc, wide)
        for copy in copies:
            b.add(copy)
        if self.any_by_tma:
            b.add(ops.TmaStoreCommit(loc=loc))
        self.group += 1


def _has_one_item(kernel: Kernel, body: Region) -> bool:
    """Whether the grid has a CTA per tile, without a loop over items."""
    grid = ops.grid_of(kernel)
    one = grid is not None and grid.scheduler == "grid" and not (grid.contraction or grid.ragged)
    return one and work_loop(kernel, body) is None
