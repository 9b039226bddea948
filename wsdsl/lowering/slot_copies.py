"""Copies to a stage: by TMA, one box per panel, or by the threads of a warpgroup."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.hardware.swizzle import SMEM_ALIGN, SWIZZLE_SPAN
from wsdsl.ir.hardware.tma_box import LINE_ALIGN, TMA_ALIGN
from wsdsl.ir.op import Kernel, Op, Value, results_of, walk
from wsdsl.ir.types import Axis, DType, Sizes, Tile
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.epilogue_operands import is_line, swizzle_of
from wsdsl.lowering.multicast_groups import Group, Share
from wsdsl.lowering.placed_ring import PlacedRing, TensorMaps
from wsdsl.lowering.product_operands import operand_lines
from wsdsl.record import record


def coordinates(
    b: Builder, index: tuple[Value, ...], starts: Mapping[Value, Value]
) -> tuple[Value, ...]:
    """Where a tile begins; an axis taken whole begins at 0."""
    found = (starts.get(v, v) for v in index)
    return tuple(b.integer(0) if isinstance(v.type, Axis) else v for v in found)


def lines_of(last: Axis, dtype: DType, divided: Sizes, packed: bool = False) -> tuple[str, int]:
    """`operand_lines`, of the contiguous axis; `divided`: by axis, among how many warpgroups."""
    return operand_lines(last.size, dtype, last.role, divided.get(last.name, 1), packed)


def slot_offsets(
    layouts: Sequence[Sequence[Tile]],
    boxes: Mapping[tuple[int, int], Sequence[int]],
    axes: Mapping[str, Axis],
    divided: Sizes,
) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """Return the bytes of a stage, and the offset of each field of each layout: panels, or one of
    the `boxes`, by layout and field.
    """
    offsets: list[tuple[int, ...]] = []
    total = 0
    for layout in layouts:
        at: list[int] = []
        used = 0
        for field, tile in enumerate(layout):
            at.append(used)
            if box := boxes.get((len(offsets), field)):
                elements, align = math.prod(box), LINE_ALIGN
            else:
                rows, last = (axes[x] for x in tile.axes)
                elements, align = rows.size * lines_of(last, tile.dtype, divided)[1], SMEM_ALIGN
            used += -(-tile.dtype.size(elements) // align) * align
        offsets.append(tuple(at))
        total = max(total, -(-used // SMEM_ALIGN) * SMEM_ALIGN)
    return total, tuple(offsets)


@record
class SlotCopies:
    """Copies to item `state` of a pipeline, whose stage has `tiles` in one of its layouts. `shares`
    of multicast tiles; axes by name, the `divided` ones (`lines_of`), and their `starts`.
    """

    builder: Builder
    maps: TensorMaps
    ring: PlacedRing
    state: Value
    layout: int
    tiles: tuple[Tile, ...]
    shares: Mapping[Group, Share]
    axes: Mapping[str, Axis]
    divided: Sizes
    starts: Mapping[Value, Value]
    counts_on: Value | None = None
    """The CTA whose barrier counts, if that is not each one's own."""

    def panels(self, fill: ops.LoadToSlot) -> tuple[int, int, str]:
        """Return rows, columns and swizzle of a tile in its stage: columns along the contiguous
        axis.
        """
        tile = self.tiles[fill.field]
        rows, last = (self.axes[x] for x in tile.axes)
        swizzle, columns = lines_of(last, tile.dtype, self.divided, fill.packed)
        return rows.size, columns, swizzle

    def at(self, fill: ops.LoadToSlot) -> tuple[Value, ...]:
        return coordinates(self.builder, fill.index, self.starts)

    def ops(
        self, fills: Sequence[ops.LoadToSlot], unaligned: Collection[str]
    ) -> tuple[list[Op], list[Op]]:
        """Return the ops of one thread, which expects bytes and issues the copies; and of all
        threads, which copy TMA-incompatible tensors.
        """
        b = self.builder
        with b.region() as copies:
            tma = [fill for fill in fills if fill.tensor.name not in unaligned]
            total = sum([self.by_tma(fill) for fill in tma])
        fields = dict[str, Any](cta=self.counts_on)
        if line := sum(map(self.narrowed_line, tma)):
            fields |= dict(narrower=self.maps.narrower, line_bytes=line)
        with b.region() as expected:
            b.expect(self.ring.full, self.state, total, **fields)
        with b.region() as by_all:
            for fill in fills:
                if fill.tensor.name in unaligned:
                    self.by_threads(fill)
        return [*expected, *copies], by_all

    def narrowed_line(self, fill: ops.LoadToSlot) -> int:
        """Bytes that come less for each by which the launch's tiles are narrower."""
        if fill.box or fill.index[_row_dim(fill)].as_axis.widths == 1:
            return 0
        return fill.dtype.size(self.panels(fill)[1])

    def by_tma(self, fill: ops.LoadToSlot) -> int:
        """One copy a panel, of a multicast tile of this CTA's lines; returns the bytes that will
        arrive.
        """
        b, dtype = self.builder, fill.dtype
        if fill.box:
            return self.beside(fill)
        rows, columns, swizzle = self.panels(fill)
        share = self.shares.get(fill.multicast)
        num = rows // share.num if share and not fill.halved else rows
        span = dtype.count(SWIZZLE_SPAN[swizzle])
        row_dim, box, at = _row_dim(fill), _box(fill), [*self.at(fill)]
        box[row_dim], box[-1] = num, span
        cast = dict[str, Any]()
        if share and fill.halved:
            dim, name = _columns(fill)
            at[dim] = b.plus(at[dim], b.times(share.part, self.axes[name].size, "half"), "half")
        elif share:
            at[row_dim] = b.plus(at[row_dim], b.times(share.part, num, "line"), "line")
            shift = b.times(share.part, dtype.size(num * span), "shift")
            cast = dict(shift=shift, multicast=share.mask)
        each, narrowed = dtype.size(rows * span), row_dim if self.narrowed_line(fill) else -1
        self.boxes(fill, box, swizzle, at, range(0, columns, span), each, narrowed, **cast)
        return dtype.size(rows * columns)

    def beside(self, fill: ops.LoadToSlot) -> int:
        """Copy values in the stage of operands, in one box."""
        b, dtype = self.builder, fill.dtype
        *at, last = self.at(fill)
        if fill.last is None:
            unit = dtype.count(TMA_ALIGN)
            last = b.times(b.quotient(last, unit), unit, "line")
        self.boxes(fill, fill.box, "none", (*at, last), range(1))
        return dtype.size(math.prod(fill.box))

    def in_parts(self, parts: Iterable[int], fills: Sequence[ops.LoadToSlot]) -> None:
        """Fill a stage per part, from `state` on."""
        b, ring, state, first = self.builder, self.ring, self.state, 0
        for width in parts:
            if first:
                state = b.next_state(state, ring.depth)
            b.wait(ring.empty, state)
            own = dataclasses.replace(self, state=state)
            with b.region() as copies:
                total = sum(own.part(fill, first, width) for fill in fills)
            b.expect(ring.full, state, total)
            b.ops += copies
            first += width

    def part(self, fill: ops.LoadToSlot, first: int, width: int) -> int:
        """Copy a part of the columns of a tile, or all of a single line."""
        dtype, tile, rows = fill.dtype, self.tiles[fill.field], 1
        swizzle = swizzle_of(tile, width)
        if is_line(tile):
            width = span = min(width, fill.axes[0].size)
        else:
            rows, span = fill.axes[0].size, dtype.count(SWIZZLE_SPAN[swizzle])
        box, columns = (*_box(fill)[:-1], span), range(first, first + width, span)
        self.boxes(fill, box, swizzle, self.at(fill), columns, dtype.size(rows * span))
        return dtype.size(rows * width)

    def boxes(
        self,
        fill: ops.LoadToSlot,
        box: Sequence[int],
        swizzle: str,
        at: Sequence[Value],
        columns: range,
        each: int = 0,
        narrowed: int = -1,
        **cast: Any,
    ) -> None:
        """From `at` on, along the last dimension one from each of the `columns` on, which lie
        `each` bytes apart in SMEM. Along `narrowed` they are as wide as the launch's tiles.
        """
        b, ring, (*others, start) = self.builder, self.ring, at
        map = self.maps.of(fill.tensor, tuple(box), swizzle, narrowed)
        where = dict[str, Any](shared=ring.shared_of(self.tiles[fill.field]), state=self.state)
        where |= dict(barriers=ring.full, cta=self.counts_on, loc=fill.loc)
        offset = ring.offsets[self.layout][fill.field]
        for n, column in enumerate(columns):
            at = (*others, b.plus(start, column))
            b.add(ops.TmaLoad(map=map, coordinates=at, offset=offset + n * each, **where, **cast))

    def by_threads(self, fill: ops.LoadToSlot) -> None:
        rows, columns, swizzle = self.panels(fill)
        box = dict[str, Any](rows=rows, columns=columns, row_dim=_row_dim(fill), swizzle=swizzle)
        where = dict[str, Any](shared=self.ring.shared, state=self.state, loc=fill.loc)
        where |= dict(offset=self.ring.offsets[self.layout][fill.field])
        at = self.at(fill)
        self.builder.add(ops.ThreadLoad(tensor=fill.tensor, coordinates=at, **box, **where))


def _box(fill: ops.LoadToSlot) -> list[int]:
    return [v.type.size if isinstance(v.type, Axis) else 1 for v in fill.index]


def _row_dim(fill: ops.LoadToSlot) -> int:
    return next(i for i, v in enumerate(fill.index) if isinstance(v.type, Axis))


def _columns(fill: ops.LoadToSlot) -> tuple[int, str]:
    """The dimension and the axis of the columns."""
    kinds = ((i, v.type) for i, v in enumerate(fill.index))
    return next((i, k.name) for i, k in kinds if isinstance(k, Axis) and k.role == "columns")


def divided(kernel: Kernel) -> dict[str, int]:
    """By axis, how many warpgroups a tile's is divided among: none, if one thread multiplies."""
    found: dict[str, int] = {}
    if any(isinstance(op, ops.Partition) and op.role == "mma" for op in kernel.body):
        return found
    for op in kernel.of(ops.Partition):
        for inner in walk(op.body):
            for value in results_of(inner):
                axis = value.type
                if isinstance(axis, Axis) and axis.role == op.share:
                    found[axis.name] = max(found.get(axis.name, 1), op.num_warpgroups)
    return found
