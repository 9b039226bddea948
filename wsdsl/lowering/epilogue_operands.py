"""Tiles that come through SMEM though nobody multiplies them: an epilogue's operands, in parts.

An epilogue goes chunk by chunk through a tile's columns. What it reads on the way, a residual or a
bias, would make it wait for GMEM with each chunk, and take a register and a condition for each
pair of elements. So another thread brings the chunks by TMA while the products run: a ring with
slots of one part (the columns of a chunk) of all of these tiles; of vectors alone, which are short,
a part is a tile's.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.analysis.intervals import may_begin_anywhere
from wsdsl.ir.hardware.swizzle import SMEM_ALIGN, widest_swizzle
from wsdsl.ir.hardware.tma_box import LINE_ALIGN, MAX_RANK
from wsdsl.ir.op import Kernel, Region, Value, once, once_each, operands, regions, results_of
from wsdsl.ir.rewriter import used_inside
from wsdsl.ir.types import Barriers, Fragment, Tile
from wsdsl.lowering.axes import output_nest
from wsdsl.lowering.buffer_assignment import SlotGroup, loads_by_warpgroups, operand_slots
from wsdsl.lowering.cooperation import cluster_splits, shared_role
from wsdsl.lowering.edge import Edge
from wsdsl.lowering.order_barriers import arrive, ring_barrier
from wsdsl.lowering.partition_context import PartitionContext, narrow_axes
from wsdsl.lowering.product_operands import copied_operands
from wsdsl.lowering.register_tiles import RegisterTile, panel_widths
from wsdsl.schedule import Schedule

MIN_DEPTH, MAX_DEPTH = 2, 4


@once_each
def epilogue_slots(kernel: Kernel, schedule: Schedule) -> tuple[SlotGroup, ...]:
    """One group, of what the epilogue of an output tile reads; or none. Of the pieces of a tile
    that is cut only one has an epilogue, or each a part of it; where consumers share columns each
    part is one consumer's, and all would wait for it; and threads that copy operands are busy, or
    there are none that load.
    Beside sums in tensor memory it is not lowered yet: threads load what they read.
    """
    if kernel.target.has_tensor_memory:
        return ()
    in_pieces = schedule.cuts_tiles or cluster_splits(kernel, schedule) > 1
    if in_pieces or shared_role(kernel, schedule) == "columns" or copied_operands(kernel):
        return ()
    return _epilogue(kernel) if loads_by_warpgroups(kernel) else ()


@once
def _epilogue(kernel: Kernel) -> tuple[SlotGroup, ...]:
    """The loads of an output tile's own block that TMA can make."""
    body, made = output_nest(kernel)[1], kernel.definers
    written = {op.tensor for op in kernel.of(ops.Store)}
    made_here = {v for op in body for v in results_of(op)}
    found: dict[tuple[Value, tuple[Value, ...]], ops.Load] = {}
    for op in body:
        if not isinstance(op, ops.Load) or op.tensor in written:
            continue
        roles = [a.role for a in op.axes]
        if (
            roles in (["rows", "columns"], ["columns"], ["rows"])
            and op.last is not None
            and op.dtype.bits >= 8
            and op.dtype.name != "bool"
            and len(op.index) <= MAX_RANK
            and op.tensor.name not in kernel.unaligned
            and not made_here & {*op.index}
            and not may_begin_anywhere(made.get(op.index[-1]), made)
            and _read_elementwise(body, op.result)
        ):
            found.setdefault((op.tensor, op.index), op)
    if all_lines(found.values()):
        # Lines of bytes would ask for wider steps.
        loads = tuple(op for op in found.values() if op.dtype.bits >= 16)
    else:
        loads = tuple(op for op in found.values() if [a.role for a in op.axes] != ["rows"])
    axes = {a.name for op in loads for a in op.axes if a.role == "columns"}
    rings = {group.ring for group in operand_slots(kernel)}
    if not loads or not rings or len(axes) > 1:
        return ()
    ends = dict[str, Any](producer="load", consumers=("compute",), ring=len(rings), depth="rest")
    edges = [
        Edge((op.result,), op, layout=op.result.type, produced_in=None, consumed_in=None, **ends)
        for op in loads
        if isinstance(op.result.type, Tile)
    ]
    return (SlotGroup(body, body.index(loads[0]), len(body) - 1, edges),)


def all_lines(loads: Iterable[ops.Load]) -> bool:
    """Whether nothing but vectors comes so: then a whole tile's at once."""
    return all(len(op.axes) == 1 for op in loads)


def _read_elementwise(body: Region, value: Value) -> bool:
    """Whether the block itself reads it, and nothing multiplies it or reads it in a loop."""
    users = [op for op in body if value in operands(op)]
    inside = any(value in used_inside(op) for op in body if regions(op))
    return bool(users) and not inside and not any(isinstance(op, ops.Contract) for op in users)


def subtile_widths(
    kernel: Kernel, loads: tuple[ops.Load, ...], sizes: dict[str, int], heavy: bool
) -> tuple[int, ...]:
    """Columns of each part, in which the tile is then computed and stored; fewer where sums leave
    few registers for them.
    """
    if all_lines(loads):
        return (max(sizes[a.name] for op in loads for a in op.axes),)
    (name,) = {a.name for op in loads for a in op.axes if a.role == "columns"}
    return panel_widths(sizes[name], heavy or name in narrow_axes(kernel))


def subtile_offsets(
    tiles: tuple[Tile, ...], widths: tuple[int, ...], sizes: dict[str, int]
) -> tuple[tuple[int, ...], tuple[int, int]]:
    """Where the tiles of a part begin in its slot, and how long that is: of panels, and of single
    lines, which have slots of their own, since those of panels are multiples of 1024 bytes.
    """
    at: list[int] = []
    used = [0, 0]
    for tile in tiles:
        single = is_line(tile)
        at.append(used[single])
        lines = 1 if single else sizes[tile.axes[0]]
        align = LINE_ALIGN if single else SMEM_ALIGN
        used[single] += -(-lines * max(widths) * tile.dtype.bytes // align) * align
    return tuple(at), (used[0], used[1])


def is_line(tile: Tile) -> bool:
    return len(tile.axes) == 1


def swizzle_of(tile: Tile, width: int) -> str:
    """A single line stays as it is."""
    return "none" if is_line(tile) else widest_swizzle(width * tile.dtype.bytes)


@dataclass
class EpilogueOperands:
    """The tiles of one `subtiles_in_shared`, read in order."""

    op: ops.SubtilesInShared
    context: PartitionContext

    def __post_init__(self) -> None:
        self.tiles = [v.type for v in self.op.result if isinstance(v.type, Tile)]
        shapes = [self.context.shapes.of(tile.axes) for tile in self.tiles]
        self.pieces = [
            RegisterTile(shape, lambda i, j, field=field: self._read(field, i, j))
            for field, shape in enumerate(shapes)
        ]
        self.state = self.op.state
        self.opened = 0
        self.unread: list[set[tuple[int, int, int]]] = [set() for _ in self.op.parts]
        for field, shape in enumerate(shapes):
            for i, j in shape.places():
                self.unread[self._place(field, j)[0]].add((field, i, j))

    def _place(self, field: int, j: int) -> tuple[int, int]:
        """The part that has chunk j, and the columns of it in front of the chunk's."""
        part, column = 0, self.pieces[field].shape.first_column(j)
        while column >= self.op.parts[part]:
            column -= self.op.parts[part]
            part += 1
        return part, column

    def _read(self, field: int, i: int, j: int) -> Value:
        part, column = self._place(field, j)
        while self.opened <= part:
            self._finish_last()
            self._open()
        assert self.opened == part + 1, "a part is read after its stage is released"
        made = self._load(field, i, j, column)
        self.unread[part].discard((field, i, j))
        # All of these rows now, so that nothing waits for SMEM in the middle of computing.
        others = sorted(f for f, rows, chunk in self.unread[part] if (rows, chunk) == (i, j))
        for other in others:
            self.pieces[other].get(i, j)
        if not self.unread[part] and not others:
            self._close()
        return made

    def _load(self, field: int, i: int, j: int, column: int) -> Value:
        context, op, tile = self.context, self.op, self.tiles[field]
        shape, name, at = self.pieces[field].shape, op.result[field].name, op.offsets[field]
        axis, size = tile.axes[0], context.axes[tile.axes[0]].size
        where = dict[str, Any](shared=op.shared[field], state=self.state, loc=op.loc)
        if shape.columns is None:
            where |= dict(offset=at, bytes=size * tile.dtype.bytes)
            where |= dict(index=context.places(axis, 1, i, j))
            return context.builder.make(ops.LoadShared, name, Fragment(tile.dtype, 64, 1), **where)
        width, two = shape.widths[j], not is_line(tile)
        where |= dict(offset=at + column * tile.dtype.bytes, swizzle=swizzle_of(tile, width))
        where |= dict(start=context.row_in_tile(axis, i) if two else None, rows=size if two else 1)
        kind = Fragment(tile.dtype, 64 if two else 1, width)
        return context.builder.make(ops.LoadPanels, name, kind, **where)

    def _open(self) -> None:
        b, op = self.context.builder, self.op
        self.context.give_back(self.op.loc)
        if self.opened:
            self.state = b.next_state(self.state, op.full.type_as(Barriers).num)
        elif op.num_pingpong > 1:
            own = ring_barrier(op.pingpong_index, op.num_pingpong)
            b.sync_threads(own, 2)
        b.wait(op.full, self.state)
        self.opened += 1
        if op.num_pingpong > 1 and self.opened == len(op.parts):
            following = ring_barrier((op.pingpong_index + 1) % op.num_pingpong, op.num_pingpong)
            arrive(b, following)

    def _close(self) -> None:
        """The slot is given back with the next fence; a store of what was made of it has one."""
        self.context.read.append((self.op.empty, self.state))

    def _finish_last(self) -> None:
        """What is left to be read of the last part, before the next one."""
        if self.opened:
            for field, i, j in sorted(self.unread[self.opened - 1]):
                self.pieces[field].get(i, j)

    def finish(self) -> None:
        """Every slot is given back, read or not."""
        self._finish_last()
        while self.opened < len(self.op.parts):
            self._open()
            self._close()
        self.context.give_back(self.op.loc)
