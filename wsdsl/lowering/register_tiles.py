"""A tile in registers: fragments of 64 rows by a chunk of columns.

Fragment (i, j) of a tile has the rows 64 i … 64 i + 63 of the warpgroup's part (fewer rows,
`height`, in tiles with fewer) and the columns of chunk j; along an axis that the tile lacks there
is one fragment. Chunks have the width of a store's line; the last one may be narrower. Fragments
are computed at their first use, so that an epilogue is emitted chunk by chunk, in the order of its
stores.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from wsdsl.ir.hardware.tcgen05_shapes import LANES
from wsdsl.ir.ops import Full, JoinColumns, Map
from wsdsl.ir.types import ACCUMULATOR, BOOL, Axis, DType, Fragment, Lanes, Tile, Type, Value
from wsdsl.lowering.builder import Builder

MAX_WIDTH = 64
ROWS, PIECE = 64, 64
"""Rows of an MMA; and the most elements of a thread of a fragment with these rows whose lanes have
vectors."""
ROW_PIECE = 8
"""The most elements per thread of fragments with fewer rows, which may be long: threads compute
with one access after another, so that results of a row need few additional registers.
"""


def chunk_widths(columns: int, narrow: bool) -> tuple[int, ...]:
    """Return the chunks of columns; `narrow` ones have at most half of the widest chunk. The rest
    is a separate chunk: to store columns twice costs more than lines without a swizzle.
    """
    widest = MAX_WIDTH // 2 if narrow else MAX_WIDTH
    whole, rest = divmod(columns, widest)
    return (widest,) * whole + (rest,) * bool(rest)


def panel_widths(columns: int, narrow: bool) -> tuple[int, ...]:
    """The same where each chunk comes as one panel, or a few of the same swizzle mode."""
    left, widest = columns, MAX_WIDTH // 2 if narrow else MAX_WIDTH
    found: list[int] = []
    while left:
        found.append(max(w for w in (8, 16, 32, 64) if w <= min(left, widest)))
        left -= found[-1]
    return tuple(found)


@dataclass(frozen=True)
class Shape:
    """How a tile with given axes is cut; `rows` and `columns` are its axes' names, if any. The 16
    rows that a warp has of a block begin `apart` behind those of the warp before: where that is 32,
    the next block's lie between them.
    """

    rows: str | None
    columns: str | None
    blocks: int = 1
    widths: tuple[int, ...] = (1,)
    lanes: Lanes = ACCUMULATOR
    height: int = 64
    apart: int = 16

    def piece(self, dtype: DType, chunk: int) -> Type:
        """Return a scalar for a fragment with one row and equal columns."""
        rows, columns = self.height if self.rows else 1, self.widths[chunk] if self.columns else 1
        if self.columns is None and rows == 1:
            return Tile(dtype)
        return Fragment(dtype, rows, columns, lanes=self.lanes)

    @property
    def elements(self) -> int:
        """Of a block of rows, along the axis of its rows."""
        if self.interleaves:
            return 4 * self.apart
        return self.height * (self.lanes.columns if self.rows == self.columns else 1)

    @property
    def interleaves(self) -> bool:
        """Whether rows of the next block lie between those of a block."""
        return self.apart > 16

    def first_row(self, block: int) -> int:
        """Of the elements along the axis of its rows."""
        together = self.apart // 16
        return block // together * self.elements + block % together * 16

    @property
    def width(self) -> int:
        """Its columns."""
        return sum(self.widths)

    def first_column(self, chunk: int) -> int:
        return sum(self.widths[:chunk])

    def places(self) -> Iterator[tuple[int, int]]:
        for i in range(self.blocks):
            for j in range(len(self.widths)):
                yield i, j


class Shapes:
    """Shapes of tiles by their axes. `narrow` axes are cut to chunks of at most 32 columns, since
    four-byte elements are stored from them through a line of 128 bytes. `cut` are those whose
    chunks are given. `lanes` other than an accumulator's have fragments of several accesses, and
    may have one axis, the `flat` one, as their rows and columns. A fragment has `height` rows.
    """

    def __init__(
        self,
        axes: Mapping[str, Axis],
        consumers: int,
        share: str,
        narrow: set[str],
        cut: dict[str, tuple[int, ...]],
        lanes: Lanes,
        flat: str | None,
        height: int,
        in_tensor_memory: bool = False,
    ) -> None:
        self.in_tensor_memory = in_tensor_memory
        """Whether warps have rows as they read them in TMEM: 32 of 128."""
        self.axes, self.consumers, self.share = axes, consumers, share
        self.narrow, self.cut, self.lanes = narrow, cut, lanes
        self.flat = flat if lanes != ACCUMULATOR else None
        self.height = height

    def own(self, axis: str) -> int:
        """Elements of a warpgroup's share along an axis."""
        kind = self.axes[axis]
        return kind.size // self.consumers if kind.role == self.share else kind.size

    def widths(self, axis: str) -> tuple[int, ...]:
        if self.lanes != ACCUMULATOR:
            return self._by_lanes(self.own(axis))
        return self.cut.get(axis) or chunk_widths(self.own(axis), axis in self.narrow)

    def of(self, axes: tuple[str, ...]) -> Shape:
        rows = next((a for a in axes if self.axes[a].role == "rows"), None)
        columns = next((a for a in axes if self.axes[a].role == "columns"), None)
        if rows and rows == self.flat:
            blocks = _parts(self.own(rows), 64 * self.lanes.columns)
            return Shape(rows, rows, blocks, (self.lanes.columns,), self.lanes)
        blocks = _parts(self.own(rows), self.height) if rows else 1
        widths = self.widths(columns) if columns else (1,)
        apart = 32 if self.in_tensor_memory and rows and self.own(rows) == LANES else 16
        return Shape(rows, columns, blocks, widths, self.lanes, self.height, apart)

    def _by_lanes(self, columns: int) -> tuple[int, ...]:
        each, most = self.lanes.columns, PIECE if self.height == ROWS else ROW_PIECE
        accesses = max(1, most // (self.lanes.vector * self.lanes.held(self.height)))
        whole, rest = divmod(_parts(columns, each), accesses)
        return (accesses * each,) * whole + (rest * each,) * bool(rest)

    def within(self, axis: str, size: int) -> bool:
        """Whether no fragment of a tile that begins at a multiple of its size crosses a multiple of
        `size`.
        """
        shape = self.of((axis,))
        widest = shape.elements if shape.rows else max(shape.widths)
        begins = (shape.first_column(j) for j in range(len(shape.widths)))
        return not any(at % widest for at in (size, self.own(axis), *begins))


def _parts(size: int, each: int) -> int:
    """Divide without a remainder, which no warpgroup would compute."""
    assert size % each == 0, f"{size} elements are no parts of {each}"
    return size // each


@dataclass
class RegisterTile:
    """The fragments of a tile; `tensor` is the tensor that they are still to be read from, if any.
    `least` are the fragments with 1 row or column where all rows or columns are known to be equal.
    """

    shape: Shape
    compute: Callable[[int, int], Value]
    tensor: Value | None = None
    made: dict[tuple[int, int], Value] = field(default_factory=dict[tuple[int, int], Value])
    narrow: RegisterTile | None = None

    @property
    def least(self) -> RegisterTile:
        return self.narrow or self

    def get(self, i: int, j: int) -> Value:
        place = (i if self.shape.rows else 0, j if self.shape.columns else 0)
        if place not in self.made:
            self.made[place] = self.compute(*place)
        return self.made[place]

    def all(self) -> tuple[Value, ...]:
        return tuple(self.get(i, j) for i, j in self.shape.places())

    def whole_rows(self, b: Builder, part: tuple[int, ...] = ()) -> Iterator[Value]:
        """Each block of rows as one fragment; of a `part` of the columns, from the first up to the
        second number, if it is given.
        """
        shape = self.shape
        begin, end = part or (0, sum(shape.widths))
        own = [j for j in range(len(shape.widths)) if begin <= shape.first_column(j) < end]
        for i in range(shape.blocks):
            yield joined(b, [self.get(i, j) for j in own], "whole")


def joined(b: Builder, parts: Sequence[Value], wish: str) -> Value:
    """Fragments of the same rows, side by side as one."""
    if len(parts) == 1:
        return parts[0]
    columns = sum(part.as_fragment.columns for part in parts)
    kind = dataclasses.replace(parts[0].as_fragment, columns=columns)
    return b.add(JoinColumns(result=b.value(wish, kind), parts=tuple(parts), loc=b.loc)).result


def covering(dtype: DType, parts: Iterable[Value]) -> Type:
    """The smallest type of what is computed from fragments and scalars element by element."""
    kinds = [v.type for v in parts if isinstance(v.type, Fragment)]
    if not kinds:
        return Tile(dtype)
    rows, columns = max(k.rows for k in kinds), max(k.columns for k in kinds)
    return Fragment(dtype, rows, columns, lanes=kinds[0].lanes)


def spread_out(b: Builder, value: Value, kind: Type) -> Value:
    """A value that is the same in all rows or columns, as the whole fragment."""
    assert isinstance(kind, Fragment)
    if value.type == kind:
        return value
    if isinstance(value.type, Tile):
        return b.add(Full(result=b.value("spread", kind), value=value)).result
    every = b.make(Full, "every", dataclasses.replace(kind, dtype=BOOL), value=b.flag(True))
    return b.make(Map, "spread", kind, fn="where", args=(every, value, value))


def narrow(
    shape: Shape,
    dtype: DType,
    b: Builder,
    compute: Callable[[int, int], Value],
    tensor: Value | None = None,
) -> RegisterTile:
    """Return fragments; `compute` returns only the rows or columns that differ."""
    least = RegisterTile(shape, compute)

    def spread(i: int, j: int) -> Value:
        value, kind = least.get(i, j), shape.piece(dtype, j)
        if value.type == kind:
            return value
        made = b.value(value.name, kind)
        if isinstance(value.type, Tile):
            return b.add(Full(result=made, value=value, loc=b.loc)).result
        fn = "or" if dtype.kind == "bool" else "max"
        return b.add(Map(result=made, fn=fn, args=(value, value), loc=b.loc)).result

    return RegisterTile(shape, spread, tensor=tensor, narrow=least)


def held(shape: Shape, values: tuple[Value, ...]) -> RegisterTile:
    """Return a tile of existing fragments, in the order of `places`."""
    made = dict(zip(shape.places(), values, strict=True))
    return RegisterTile(shape, lambda i, j: made[(i, j)], made=made)


@dataclass
class Accumulated:
    """A tile that products add to: one accumulator a row block, as wide as the tile.

    `started` tells (at run time, if it is a value) whether anything was added yet; until then the
    registers are undefined and count as zeros. `waited` are the fragments, once read.
    """

    shape: Shape
    accumulators: tuple[Value, ...]
    started: Value | bool
    waited: tuple[Value, ...] = ()
