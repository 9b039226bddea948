"""What is copied to a slot: by TMA a box a panel, or by a warpgroup's threads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from wsdsl.ir.memory_ops import ThreadLoad, TmaLoad
from wsdsl.ir.op import Kernel, Value, results_of
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.slot_ops import LoadToSlot
from wsdsl.ir.swizzle import SWIZZLE_SPAN
from wsdsl.ir.tma import TMA_ALIGN
from wsdsl.ir.types import Axis, DType, Tile
from wsdsl.ir.walk import walk
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.multicast_groups import Group, Share
from wsdsl.lowering.operand_lines import operand_lines
from wsdsl.lowering.placed_ring import PlacedRing, TensorMaps


def coordinates(
    b: Builder, index: tuple[Value, ...], starts: Mapping[Value, Value]
) -> tuple[Value, ...]:
    """Where a tile begins; an axis taken whole begins at 0."""
    found = (starts.get(v, v) for v in index)
    return tuple(b.integer(0) if isinstance(v.type, Axis) else v for v in found)


def lines_of(
    last: Axis, dtype: DType, divided: Mapping[str, int], packed: bool = False
) -> tuple[str, int]:
    """`operand_lines`, of the contiguous axis; `divided`: by axis, among how many warpgroups."""
    return operand_lines(last.size, dtype, last.role, divided.get(last.name, 1), packed)


@dataclass(frozen=True)
class Places:
    """`layout` of a slot, with axes by name, which are `divided` (`lines_of`); `starts` of axes."""

    layout: tuple[Tile, ...]
    axes: Mapping[str, Axis]
    divided: Mapping[str, int]
    starts: Mapping[Value, Value]


@dataclass(frozen=True)
class SlotCopies:
    """To item `state` of a ring; `shares` of what is multicast."""

    builder: Builder
    maps: TensorMaps
    ring: PlacedRing
    state: Value
    shares: Mapping[Group, Share]
    places: Places

    def panels(self, fill: LoadToSlot) -> tuple[int, int, str]:
        """(rows, columns, swizzle) of a tile in its slot: columns along the contiguous axis."""
        tile = self.places.layout[fill.field]
        rows, last = (self.places.axes[x] for x in tile.axes)
        swizzle, columns = lines_of(last, tile.dtype, self.places.divided, fill.packed)
        return rows.size, columns, swizzle

    def by_tma(self, fill: LoadToSlot, layout: int) -> int:
        """One copy a panel, of a multicast tile of this CTA's lines; returns the bytes that will
        arrive.
        """
        b, ring, dtype = self.builder, self.ring, fill.dtype
        if fill.box:
            return self.beside(fill, layout)
        rows, columns, swizzle = self.panels(fill)
        share = self.shares.get(fill.multicast)
        num = rows // share.num if share else rows
        span = dtype.count(SWIZZLE_SPAN[swizzle])
        row_dim = _row_dim(fill)
        box = [v.type.size if isinstance(v.type, Axis) else 1 for v in fill.index]
        box[row_dim], box[-1] = num, span
        map = self.maps.of(fill.tensor, tuple(box), swizzle)
        at = list(coordinates(b, fill.index, self.places.starts))
        start, shift = at[-1], None
        if share:
            at[row_dim] = b.plus(at[row_dim], b.times(share.part, num, "line"), "line")
            shift = b.times(share.part, dtype.size(num * span), "shift")
        offset = ring.offsets[layout][fill.field]
        for panel in range(columns // span):
            b.add(
                TmaLoad(
                    map=map,
                    coordinates=(*at[:-1], b.plus(start, panel * span)),
                    shared=ring.shared,
                    offset=offset + dtype.size(panel * rows * span),
                    shift=shift,
                    state=self.state,
                    barriers=ring.full,
                    multicast=share.mask if share else None,
                    loc=fill.loc,
                )
            )
        return dtype.size(rows * columns)

    def beside(self, fill: LoadToSlot, layout: int) -> int:
        """What lies beside operands, in one box."""
        b, dtype = self.builder, fill.dtype
        *at, last = coordinates(b, fill.index, self.places.starts)
        if fill.last is None:
            unit = dtype.count(TMA_ALIGN)
            last = b.times(b.quotient(last, unit), unit, "line")
        b.add(
            TmaLoad(
                map=self.maps.of(fill.tensor, fill.box, "none"),
                coordinates=(*at, last),
                shared=self.ring.shared,
                offset=self.ring.offsets[layout][fill.field],
                state=self.state,
                barriers=self.ring.full,
                loc=fill.loc,
            )
        )
        return dtype.size(math.prod(fill.box))

    def by_threads(self, fill: LoadToSlot, layout: int) -> None:
        rows, columns, swizzle = self.panels(fill)
        self.builder.add(
            ThreadLoad(
                tensor=fill.tensor,
                coordinates=coordinates(self.builder, fill.index, self.places.starts),
                row_dim=_row_dim(fill),
                rows=rows,
                columns=columns,
                swizzle=swizzle,
                shared=self.ring.shared,
                offset=self.ring.offsets[layout][fill.field],
                state=self.state,
                loc=fill.loc,
            )
        )


def _row_dim(fill: LoadToSlot) -> int:
    return next(i for i, v in enumerate(fill.index) if isinstance(v.type, Axis))


def divided(kernel: Kernel) -> dict[str, int]:
    """By axis, how many warpgroups a tile's is divided among."""
    found: dict[str, int] = {}
    for op in kernel.body:
        for inner in walk(op.body) if isinstance(op, Partition) else ():
            assert isinstance(op, Partition)
            for value in results_of(inner):
                axis = value.type
                if isinstance(axis, Axis) and axis.role == op.share:
                    found[axis.name] = max(found.get(axis.name, 1), op.num_warpgroups)
    return found
