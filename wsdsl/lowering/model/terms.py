"""A kernel's ops as the few numbers that a choice of tile sizes asks of them, hundreds of times:
axes by name, bits, and in which loops they stand. `Work` adds up what they give.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from wsdsl.ir.swizzle import SWIZZLE_SPAN
from wsdsl.ir.tile_ops import Contract, Load, Store
from wsdsl.ir.types import Axis, DType, Role, Tensor, Tile
from wsdsl.ir.wgmma import k_step
from wsdsl.lowering.footprint import MAX_LINE
from wsdsl.lowering.model.lines import SECTOR_BYTES
from wsdsl.lowering.operand_lines import operand_lines
from wsdsl.lowering.passes.fit_last_tiles import reach_over

Sizes = Mapping[str, int]


def elements(axes: tuple[str, ...], tile: Sizes) -> int:
    """Of a tile along these axes."""
    return math.prod([tile[a] for a in axes])


@dataclass(frozen=True)
class ProductTerm:
    """`around`: which of `Work.around` the loops are, here and below."""

    around: int
    op: Contract
    axes: tuple[str, ...]
    columns: tuple[str, ...]
    bits: int
    each_cycle: int
    """Multiplications: an instruction (64 rows) takes half as many cycles as it has columns."""

    @classmethod
    def of(cls, around: int, op: Contract, roles: Mapping[str, Role]) -> ProductTerm:
        a, b = op.a.type, op.b.type
        assert isinstance(a, Tile) and isinstance(b, Tile)
        axes = tuple(dict.fromkeys((*a.axes, *b.axes)))
        columns = tuple(x for x in axes if roles[x] == "columns")
        return cls(around, op, axes, columns, a.dtype.bits, 64 * k_step(a.dtype) * 2)

    def read_bytes(self, volume: int, tile: Sizes) -> float:
        """That instructions read of SMEM, each 64 rows and all columns."""
        return volume * (1 / 64 + 1 / elements(self.columns, tile)) * self.bits / 8


@dataclass(frozen=True)
class StoreTerm:
    """Of elements along `axes`, which lie along `last` in memory, if that is an axis."""

    around: int
    axes: tuple[str, ...]
    last: Axis | None
    size: int
    """Of the dimension along `last`."""
    bits: int
    transposes: bool
    """Whether rows of a tile's fragments are contiguous in memory."""

    @classmethod
    def of(cls, around: int, op: Store, roles: Mapping[str, Role], size: int) -> StoreTerm:
        last = last_axis(op)
        axes = tuple(v.type.name for v in op.index if isinstance(v.type, Axis))
        assert isinstance(op.tensor.type, Tensor)
        transposes = last is not None and len(axes) > 1 and roles[last.name] == "rows"
        return cls(around, axes, last, size, op.tensor.type.dtype.bits, transposes)

    def lines(self, tile: Sizes) -> int:
        """Rows of the tile as it lies in memory."""
        return elements(self.axes[:-1] if self.last else self.axes, tile)

    def split_rows(self, tile: Sizes) -> float:
        """0 if tiles begin where sectors do along the contiguous dimension, or there is but one."""
        if self.last is None or self.size <= tile[self.last.name]:
            return 0.0
        whole = tile[self.last.name] * self.bits % (8 * SECTOR_BYTES) == 0
        return 0.0 if whole else self.lines(tile)

    def unfilled(self, tile: Sizes) -> int:
        """Elements of the lines of 128 bytes that a tile's rows end in, beyond it."""
        if self.last is None:
            return 0
        return self.lines(tile) * (-tile[self.last.name] % (8 * MAX_LINE // self.bits))


@dataclass(frozen=True)
class LoadTerm:
    """Of an operand, in lines along `last`, if that is an axis."""

    around: int
    op: Load
    axes: tuple[str, ...]
    last: Axis | None
    dtype: DType
    role: Role
    """Of `last`."""
    spans: tuple[tuple[str, int, bool, int], ...]
    """By axis: its name, the dimension's size, whether it is a loop's over the output, and the unit
    of where its tiles may begin (`units_within`)."""
    wanted_by: tuple[int, ...]
    """Loops over the output whose tiles all want the same."""

    def moved_bytes(self, tile: Sizes) -> float:
        """Of a tile: of lines along rows or columns, which may be short, or reach over the tile,
        what TMA could move in the time.
        """
        width = self.dtype.bytes
        if self.last is None or not self.role:
            return elements(self.axes, tile) * width
        swizzle, of_lines = operand_lines(tile[self.last.name], self.dtype, self.role)
        lines = elements(self.axes[:-1], tile)
        return lines * of_lines * width * MAX_LINE / SWIZZLE_SPAN[swizzle]

    def row_bytes(self, tile: Sizes) -> float:
        """Contiguous ones of a tile."""
        return (tile[self.last.name] if self.last else 1) * self.dtype.bits / 8

    def beyond(self, tile: Sizes, counted: float) -> tuple[float, float]:
        """Elements beyond the end of the tensor: of the last tile of the output, and of all tiles
        that are summed in the mean; and the same where no tiles overlap. `counted`: by how much
        they count where no tile is without.
        """
        whole, factor, inside, apart = 1, 1.0, 1.0, 1.0
        for name, size, is_outer, unit in self.spans:
            each = tile[name] if tile[name] > 1 else 1
            whole *= tile[name]
            over = reach_over(size, each, unit)
            more = over if unit == 0 else reach_over(size, each, 0)
            if is_outer:
                inside *= each - over
                apart *= each - more
                if size < each:
                    factor = counted
            else:
                tiles = max(1, -(-size // each))
                inside *= each - over / tiles
                apart *= each - more / tiles
        return (whole - inside) * factor, (whole - apart) * factor


def last_axis(op: Load | Store) -> Axis | None:
    """The axis that lies along memory."""
    last = op.index[-1].type if op.index else None
    return last if isinstance(last, Axis) else None
