"""A kernel's ops as the few numbers that a choice of tile sizes asks of them, hundreds of times:
axes by name, bits, and in which loops they stand. `Work` adds up what they give.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from wsdsl.ir.fragment_ops import ReduceColumns
from wsdsl.ir.op import Op
from wsdsl.ir.swizzle import SWIZZLE_SPAN
from wsdsl.ir.tile_ops import Bitcast, Cast, Contract, Load, Lookup, Map, Reduce, Store
from wsdsl.ir.types import Axis, DType, Fragment, Role, Tile, Type
from wsdsl.ir.wgmma import K_BYTES, MAX_COLUMNS, ROWS, k_step
from wsdsl.lowering.footprint import MAX_LINE
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

    @classmethod
    def of(
        cls, around: int, op: Contract, roles: Mapping[str, Role], in_registers: bool
    ) -> ProductTerm:
        a, b = op.a.as_tile, op.b.as_tile
        axes = tuple(dict.fromkeys((*a.axes, *b.axes)))
        columns = tuple(x for x in axes if roles[x] == "columns" and x not in op.summed)
        return cls(around, op, axes, columns, a.dtype.bits, k_step(a.dtype), in_registers)

    def cycles(self, volume: int, tile: Sizes, rates: Rates) -> float:
        """Of the tensor cores; instructions have 64 rows and all columns."""
        columns = min(MAX_COLUMNS, elements(self.columns, tile))
        each = rates.tensor_cycles(columns, self.bits, a_in_registers=self.in_registers)
        return volume / (ROWS * self.step * columns) * each

    def read_bytes(self, volume: int, tile: Sizes) -> float:
        """That the instructions read of SMEM."""
        columns = min(MAX_COLUMNS, elements(self.columns, tile))
        each = columns * K_BYTES + (0 if self.in_registers else ROWS * K_BYTES)
        return volume / (ROWS * self.step * columns) * each


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
        if self.last is None:
            return elements(self.axes, tile) * width
        if not self.role:
            line = tile[self.last.name] * width
            return elements(self.axes[:-1], tile) * -(-line // MAX_LINE) * MAX_LINE
        swizzle, of_lines = operand_lines(tile[self.last.name], self.dtype, self.role)
        lines = elements(self.axes[:-1], tile)
        return lines * of_lines * width * MAX_LINE / SWIZZLE_SPAN[swizzle]

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


COUNTED = {
    "exp": 8, "exp2": 8, "log": 27, "log2": 31, "sqrt": 5, "rsqrt": 5, "sin": 25, "cos": 25,
    "tanh": 20, "sigmoid": 16, "silu": 16, "erf": 25, "gelu": 11, "div": 9, "floordiv": 9,
    "mod": 9, "pow": 78, "max": 2, "min": 2, "byte_of": 1.6, "join": 0.5,
    "byte_of_8": 0.6,
}  # fmt: skip
"""In the machine code of f32 functions, or 8 for each that is special, of which an SM has 16 a
cycle, and 2 for those of which it has 64; of others, that are one, nothing is said here.
"""
RELAXED = {"gelu": {8: 8, 11: 9}, "tanh": {8: 8}}
"""By the bits that count, where that makes a difference."""
FROM_BYTES = 6.0
"""A conversion from 8 bits or fewer to 16, with what brings them to registers, and the waits for
products that read what is converted."""
LOADED, LOADED_NARROW = 6.0, 13.0
"""An element that threads load by themselves: masks, addresses and loads; of less than 32 bits,
which are loaded in pairs where a row lets them, and else singly."""
REDUCED = {"add": 1.0, "max": 2.0, "min": 2.0}
"""Of an element that is reduced; the few shuffles of a row are not counted."""


def of_load(kind: DType) -> float:
    """Instructions for an element that threads load by themselves."""
    return LOADED if kind.bits >= 32 else LOADED_NARROW


def instructions(op: Op) -> tuple[float, tuple[str, ...]] | None:
    """For each element, and the axes along which these lie; None if an op computes no tile."""
    counted = per_element(op)
    axes = counted[1].axes if counted and isinstance(counted[1], Tile) else ()
    return (counted[0], axes) if counted and axes else None


def per_element(op: Op) -> tuple[float, Type] | None:
    """For each element, and what has these. A conversion to 16 bits makes two elements."""
    match op:
        case Map(fn=fn, result=result, bits=bits):
            fewer = (n for most, n in RELAXED.get(fn, {}).items() if bits <= most)
            return float(next(fewer, COUNTED.get(fn, 1))), result.type
        case Cast(x=x, result=result):
            made, given = result.type, x.type
            packed = isinstance(given, (Tile, Fragment)) and given.dtype.bits <= 8
            narrow = isinstance(made, (Tile, Fragment)) and made.dtype.bits <= 16
            return FROM_BYTES if packed else 0.5 if narrow else 1.0, made
        case Reduce(x=x, fn=fn) | ReduceColumns(x=x, fn=fn):
            return REDUCED[fn], x.type
        case Bitcast(result=result) | Lookup(result=result):
            return 1.0, result.type
        case _:
            return None
