"""A kernel's ops as the few numbers that a choice of tile sizes asks of them, hundreds of times:
axes by name, bits, and in which loops they stand. `Work` adds up what they give.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from wsdsl.ir.op import Op, Value
from wsdsl.ir.swizzle import SWIZZLE_SPAN
from wsdsl.ir.tcgen05 import LANES
from wsdsl.ir.tile_ops import Contract, End, ForEach, ForTiles, Index, Load, Store
from wsdsl.ir.types import Axis, DType, Role
from wsdsl.ir.walk import made_of
from wsdsl.ir.wgmma import K_BYTES, MAX_COLUMNS, ROWS, k_step
from wsdsl.lowering.footprint import MAX_LINE
from wsdsl.lowering.multicast_groups import comes_out_even
from wsdsl.lowering.operand_lines import operand_lines
from wsdsl.lowering.passes.fit_last_tiles import reach_over
from wsdsl.rates import Rates

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
    step: int
    """Elements of the contraction that an instruction takes."""
    in_registers: bool
    """Whether A is."""
    rows: tuple[str, ...] = ()
    """Of what is summed in tensor memory, where an instruction has all rows of a tile."""

    @classmethod
    def of(
        cls,
        around: int,
        op: Contract,
        roles: Mapping[str, Role],
        in_registers: bool,
        in_tensors: bool = False,
    ) -> ProductTerm:
        a, b = op.a.as_tile, op.b.as_tile
        axes = tuple(dict.fromkeys((*a.axes, *b.axes)))
        columns = tuple(x for x in axes if roles[x] == "columns" and x not in op.summed)
        rows = tuple(x for x in axes if roles[x] == "rows") if in_tensors else ()
        return cls(around, op, axes, columns, a.dtype.bits, k_step(a.dtype), in_registers, rows)

    def num_rows(self, tile: Sizes) -> int:
        """Of an instruction."""
        return min(LANES, max(ROWS, elements(self.rows, tile))) if self.rows else ROWS

    def cycles(self, volume: int, tile: Sizes, rates: Rates, cta_group: int = 1) -> float:
        """Of the tensor cores; instructions have 64 rows, or those of a tile, and all columns."""
        columns, rows = min(MAX_COLUMNS, elements(self.columns, tile)), self.num_rows(tile)
        each = rates.tensor_cycles(
            columns,
            self.bits,
            a_in_registers=self.in_registers,
            rows=rows if self.rows else 0,
            cta_group=cta_group,
        )
        return volume / (rows * self.step * columns) * each

    def read_bytes(self, volume: int, tile: Sizes, cta_group: int = 1) -> float:
        """That the instructions read of SMEM, of each CTA."""
        columns, rows = min(MAX_COLUMNS, elements(self.columns, tile)), self.num_rows(tile)
        each = columns * K_BYTES / cta_group + (0 if self.in_registers else rows * K_BYTES)
        return volume / (rows * self.step * columns) * each


@dataclass(frozen=True)
class StoreTerm:
    """Of elements along `axes`."""

    around: int
    axes: tuple[str, ...]
    bits: int

    @classmethod
    def of(cls, around: int, op: Store) -> StoreTerm:
        return cls(around, tuple(a.name for a in op.axes), op.dtype.bits)


@dataclass(frozen=True, eq=False)
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

    def moved_bytes(self, tile: Sizes) -> float:
        """Of a tile: of lines that are short, or reach over the tile, what TMA could move in the
        time.
        """
        width = self.dtype.bits / 8
        if self.last is None or self.op.packed:
            # Packed blocks are whole lines, one behind the other.
            return elements(self.axes, tile) * width
        if not self.role:
            line = tile[self.last.name] * width
            return elements(self.axes[:-1], tile) * -(-line // MAX_LINE) * MAX_LINE
        swizzle, of_lines = operand_lines(tile[self.last.name], self.dtype, self.role)
        lines = elements(self.axes[:-1], tile)
        return lines * of_lines * width * MAX_LINE / SWIZZLE_SPAN[swizzle]

    def loaded_by(self, tile: Sizes, together: Mapping[str, int]) -> int:
        """CTAs that each bring a part of it for all, of those that load for each other."""
        num = math.prod([num for axis, num in together.items() if axis not in self.axes])
        return num if comes_out_even(tile[self.axes[0]], num, self.op.packed) else 1

    def beyond(self, tile: Sizes) -> float:
        """Elements beyond the end of the tensor: of the last tile of the output, and of all tiles
        that are summed in the mean.
        """
        whole, inside = 1, 1.0
        for name, size, is_outer, unit in self.spans:
            each = tile[name] if tile[name] > 1 else 1
            whole *= tile[name]
            over = reach_over(size, each, unit)
            inside *= each - (over if is_outer else over / max(1, -(-size // each)))
        return whole - inside


def is_made(value: Value, made: Mapping[Value, Op]) -> bool:
    """Whether it comes from a product in the same loop."""
    ops = made_of((value,), made, lambda op: not isinstance(op, (ForTiles, ForEach)))
    return any(isinstance(op, Contract) for _, op in ops)


def ends_with_a_tile(loop: ForTiles | ForEach, made: Mapping[Value, Op]) -> set[str]:
    """Axes of which a tile ends where the loop does, or begins."""
    bounds = () if isinstance(loop, ForEach) else (loop.start, loop.stop)
    ops = [made.get(value) for value in bounds if value]
    axes = [op.axis.type for op in ops if isinstance(op, (End, Index))]
    return {axis.name for axis in axes if isinstance(axis, Axis)}
