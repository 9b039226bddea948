"""Transposes of tiles through SMEM, in memory-bound kernels.

    %x: frag<bf16[64x128] lanes 8x8 tall 2> = load_global(tensor=%X, index=(%m, %n), vector=8)
    store_transposed(parts=(%x,), shared=%turned, item=%wg, step=8)
    named_barrier_sync(barrier=8, num_warpgroups=1)
    %y: frag<bf16[64x64] lanes 8x8> = load_transposed(shared=%turned, item=%wg, length=64, step=8)
    store_global(tensor=%Y, index=(%n, %m), value=%y, vector=8)

A transposed store reads SMEM in the layout of its tensor; a transposed load has the layout of its
tensor, and reads SMEM in that of other tiles. Loads do not wait for each other's transposes, which
follow at the first use of a tile. All warps of a partition synchronize between writes and reads,
and before SMEM is written again.
"""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

from wsdsl.diagnostics import Loc
from wsdsl.ir.op import Value
from wsdsl.ir.ops import Load, LoadTransposed, Lookup, Store, StoreTransposed
from wsdsl.ir.types import Lanes, Role, Shared
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.reads import Find, load_piece
from wsdsl.lowering.register_layout import turned, turned_bytes, turned_lanes
from wsdsl.lowering.register_tiles import RegisterTile, Shapes, spread_out

OTHER: dict[Role, Role] = {"rows": "columns", "columns": "rows", "": ""}


class TurnedTiles:
    """Of a partition."""

    def __init__(self, context: PartitionContext) -> None:
        self.context = context
        self.shared: Value | None = None
        self.unsettled = False
        """Whether a warp may still read what another one wrote."""

    def takes(self, op: Load | Store) -> bool:
        """By tensor and axes: an op may have other indices by now."""
        alike = (held for held in turned(self.context.kernel) if held.tensor == op.tensor)
        return any(held.axes == op.axes for held in alike)

    def load(self, op: Load | Lookup, find: Find) -> RegisterTile:
        """Load all tiles, if some are transposed; the transposes follow on demand."""
        if not isinstance(op, Load) or not self.takes(op):
            loaded = load_piece(op, self.context, find)
            if turned(self.context.kernel):
                loaded.least.all()
            return loaded
        far, axes = self._other_way(op), op.result.as_tile.axes
        loaded = load_piece(op, far, find)
        loaded.all()
        shape = self.context.shapes.of(axes)
        made: list[RegisterTile] = []

        def piece(i: int, j: int) -> Value:
            if not made:
                made.append(self._turn(loaded.get, op, (far, self.context), axes))
                made[0].all()
            return made[0].get(i, j)

        return RegisterTile(shape, piece, op.tensor)

    def store(
        self,
        op: Store,
        piece: Callable[[int, int], Value],
        write: Callable[[PartitionContext, tuple[int, int], Value], None],
    ) -> None:
        """`piece`: of what is stored, in the tensor's type; `write`: to the tensor, by a context in
        which rows are columns."""
        far, axes = self._other_way(op), tuple(axis.name for axis in op.axes)
        pieces = self._turn(piece, op, (self.context, far), axes)
        for place in pieces.shape.places():
            write(far, place, pieces.get(*place))

    def settle(self, loc: Loc | None) -> None:
        """Synchronize before a region, at its end, and before the next tile."""
        if self.unsettled:
            self.context.sync(loc)
            self.unsettled = False

    def _other_way(self, op: Load | Store) -> PartitionContext:
        """In which the roles of axes are exchanged, and lanes are those of the op's tensor."""
        own, kernel = self.context.shapes, self.context.kernel
        axes = {n: dataclasses.replace(a, role=OTHER[a.role]) for n, a in own.axes.items()}
        lanes = turned_lanes(kernel, op)
        height = lanes_height(own, op)
        far = copy.copy(self.context)
        share = "columns" if own.share == "rows" else "rows"
        far.shapes = Shapes(axes, own.consumers, share, set(), {}, lanes, None, height)
        return far

    def _turn(
        self,
        piece: Callable[[int, int], Value],
        op: Load | Store,
        ways: tuple[PartitionContext, PartitionContext],
        axes: tuple[str, ...],
    ) -> RegisterTile:
        """A tile that is held one way, the other way."""
        b, dtype, loc = self.context.builder, op.dtype, op.loc
        before, after = (way.shapes.of(axes) for way in ways)
        shared, item = self._buffer(), self.context.warpgroup
        places, length = range(len(before.widths)), before.blocks * before.height
        where = dict[str, Any](step=step_between(before.lanes, after.lanes), loc=loc)
        where |= dict(shared=shared, item=item)
        held = [
            tuple(spread_out(b, piece(i, j), before.piece(dtype, j)) for i in range(before.blocks))
            for j in places
        ]
        self.settle(loc)
        for j, parts in zip(places, held, strict=True):
            line = before.first_column(j)
            b.add(StoreTransposed(parts=parts, line=line, **where))
        self.context.sync(loc)
        self.unsettled = True

        def read(i: int, j: int) -> Value:
            wish, kind = f"{op.tensor.name.lower()}_turned", after.piece(dtype, j)
            lines = dict(line=after.first_row(i), first=after.first_column(j), length=length)
            return b.make(LoadTransposed, wish, kind, **lines, **where)

        return RegisterTile(after, read)

    def _buffer(self) -> Value:
        if self.shared is None:
            context = self.context
            kind = Shared(turned_bytes(context.kernel, context.shapes.own), context.num_warpgroups)
            self.shared = context.builder.shared("turned", kind, label="turned")
        return self.shared


def lanes_height(shapes: Shapes, op: Load | Store) -> int:
    """Return the rows of a fragment whose rows are columns of the other layout."""
    (columns,) = (a.name for a in op.axes if shapes.axes[a.name].role == "columns")
    own = shapes.own(columns)
    return min(64, own & -own)


def step_between(before: Lanes, after: Lanes) -> int:
    """By which lines are exchanged that threads write and read so."""
    if not before.striped:
        return before.vector
    return 0 if after.striped else 1
