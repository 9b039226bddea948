"""SCHEDULED: SMEM, tensor maps, TMA copies and direct accesses to global memory.

A tile lies in SMEM as *panels*: its contiguous axis (`columns`) is cut into spans of the swizzle
mode's width (128, 64 or 32 bytes; "none": 16), and each panel is `rows` lines of one span, panels
one after another. Bits of the address are exchanged within a panel as TMA does (`swizzle_address`
in `ir/hardware/swizzle.py`). An item starts at a multiple of 1024 bytes, so do the 8-row atoms of
its panels.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir.attribute_checks import ANY_ORDER, APART, BYTES, PLACE, between
from wsdsl.ir.effects import Access, Effects, Span, scaled, whole
from wsdsl.ir.hardware.swizzle import (
    PACKED_SPAN,
    SMEM_ALIGN,
    SWIZZLE_SPAN,
    VECTOR,
    lines_reached,
    start_faults,
)
from wsdsl.ir.hardware.tma_box import LINE_ALIGN, TMA_ALIGN
from wsdsl.ir.op import SCHEDULED, Makers, OneResult, Op, Value, op_class
from wsdsl.ir.types import ACCUMULATOR, DTYPES, WARPS, Fragment, Shared, Tile, Type


@op_class(SCHEDULED, "kernel", ranges=dict(offset=PLACE), result=Shared)
class AllocateShared(OneResult):
    """SMEM for `num` items of `bytes` bytes (see its type), at `offset` (-1: not placed)."""

    label: str
    offset: int = -1

    @property
    def smem_bytes(self) -> int:
        kind = self.result.type_as(Shared)
        return kind.bytes * kind.num

    @property
    def smem_align(self) -> int:
        return SMEM_ALIGN


@op_class(SCHEDULED, "warpgroup")
class ClearPanels(Op):
    """All 128 threads of the warpgroup write zeros to parts of the tile of `rows` x `columns`
    elements of `dtype` that lies as panels in item `state.stage` of `shared`, `offset` bytes in:
    to the elements of each line that are not from `begin` to `end` (i32), or with `lines` to all of
    the lines that are not. Complete when it returns, in the generic proxy. No other thread may
    access the tile meanwhile.
    """

    shared: Value
    offset: int = 0
    state: Value
    begin: Value
    end: Value
    lines: bool = False
    dtype: str
    rows: int
    columns: int
    swizzle: str

    def effects(self, made: Makers) -> Effects:
        spans = whole(self.offset, self.rows * self.columns * DTYPES[self.dtype].bits // 8)
        yield Access("write", "smem", self.shared, self.state, spans)

    def faults(self, made: Makers) -> Iterator[str]:
        yield from start_faults(self.offset, self.swizzle)
        line, span = self.columns * DTYPES[self.dtype].bytes, SWIZZLE_SPAN[self.swizzle]
        if line % span:
            yield f"rows of {line} bytes are not a multiple of the swizzle span of {span} bytes"


@op_class(SCHEDULED, "warpgroup", ranges=dict(rows=between(0), half=between(0, 2), apart=APART))
class StoreShared(Op):
    """Each warp of the warpgroup writes its 16 rows of the fragment `value` (64 x w) to its quarter
    of item `item` (i32) of `shared`: warp i at i * bytes / 4, as one panel of the swizzle mode:
    16 lines of w elements, or `transposed` w lines of 16 elements. A line is one span; without
    swizzle it is any multiple of 16 bytes, and the next one follows it, as TMA has it. `joined`:
    the warps' transposed panels are one, of w lines of 64 elements, so they must synchronize. With
    `half` 1 or 2 a warp's panel has 32 rows, and these are the first or the last 16; of
    `transposed` lines of 32 elements each they are the first or the last half.

    With a `state` it is lines from `start` (i32) on of the panels of a tile of `rows` lines in item
    `state.stage`, `offset` bytes in, those of warps `apart`; the last panel may be filled in part.
    """

    value: Value
    shared: Value
    item: Value | None = None
    state: Value | None = None
    offset: int = 0
    start: Value | None = None
    rows: int = 0
    swizzle: str
    transposed: bool = False
    joined: bool = False
    half: int = 0
    apart: int = 16

    @property
    def before(self) -> int:
        """Bytes of the warp's panel before its rows."""
        kind = self.value.as_fragment
        return 16 * kind.dtype.size(kind.columns) if self.half == 2 and not self.transposed else 0

    @property
    def along(self) -> int:
        """Bytes of each line before its elements."""
        kind = self.value.as_fragment
        return kind.dtype.size(16) if self.half == 2 and self.transposed else 0

    @property
    def line(self) -> int:
        """Elements of a line, if lines are columns."""
        return 64 if self.joined else 32 if self.half else 16

    @property
    def panels(self) -> int:
        """Panels that the fragment reaches, of a tile."""
        kind = self.value.as_fragment
        return -(-kind.dtype.size(kind.columns) // SWIZZLE_SPAN[self.swizzle])

    def effects(self, made: Makers) -> Effects:
        if self.state is not None:
            spans = tuple([self._lines(warp) for warp in range(WARPS)])
            yield Access("write", "smem", self.shared, self.state, spans)
            return
        kind, quarter = self.value.as_fragment, self.shared.type_as(Shared).bytes // WARPS
        rows = self.line if self.transposed and self.half else 16
        size = rows * kind.columns * kind.dtype.bits // 8
        spans = tuple([(Span(warp * quarter + self.before, size),) for warp in range(WARPS)])
        if self.joined:
            spans = whole(self.before, WARPS * size)
        yield Access("write", "smem", self.shared, self.item, spans)

    def _lines(self, warp: int) -> tuple[Span, ...]:
        """Return the 16 rows of a warp in each panel."""
        span, spans = SWIZZLE_SPAN[self.swizzle], list[Span]()
        for panel in range(self.panels):
            first = self.offset + panel * self.rows * span
            start = first + self.apart * warp * span
            within = first, first + self.rows * span
            spans.append(Span(start, 16 * span, scaled(self.start, span), within))
        return tuple(spans)

    def faults(self, made: Makers) -> Iterator[str]:
        yield from start_faults(self.offset, self.swizzle)
        kind = self.value.as_fragment
        panel = self.transposed and self.swizzle == "128B" and kind.dtype.bits == 16
        if self.joined and not panel:
            yield 'joined panels need transposed=True, 16-bit elements and swizzle="128B"'
        if (self.item is None) == (self.state is None) or (self.item is not None and self.rows):
            yield "the destination must be a quarter of an `item`, or rows of the item of a `state`"
        elif self.apart != 16 and self.state is None:
            yield "`apart` needs a `state`"
        elif self.half and (self.state is not None or self.joined):
            yield "`half` needs an `item` that is not joined"
        elif self.state is not None:
            fits = kind.rows == 64 and kind.columns % 8 == 0 and kind.dtype.bits in (8, 16, 32)
            fits = fits and self.start is not None and not self.transposed
            if not fits or self.rows < lines_reached(self.apart):
                yield f"{kind} does not fit a tile of {self.rows} rows"
        else:
            wide = (self.line if self.transposed else kind.columns) * kind.dtype.bytes
            span = SWIZZLE_SPAN[self.swizzle]
            whole = not wide % span if self.swizzle == "none" else wide == span
            if kind.rows != 64 or kind.columns % 8 or not whole:
                yield f"rows of {wide} bytes of {kind} do not fit swizzle {self.swizzle}"


@op_class(SCHEDULED, "warps")
class LoadShared(OneResult):
    """The threads of each warp, together, read elements of two or four bytes from item
    `state.stage` of `shared`, from the `bytes` bytes that begin `offset` bytes in: the element
    `first` (an i32; 0 without) plus `index` (an i32 scalar or fragment) times `stride`. The result
    has the index's shape. TMA may overwrite the item behind a `fence_async_proxy` of each thread.
    """

    shared: Value
    offset: int = 0
    state: Value
    bytes: int
    first: Value | None = None
    index: Value
    stride: int = 1

    def effects(self, made: Makers) -> Effects:
        yield Access("read", "smem", self.shared, self.state, whole(self.offset, self.bytes))

    def faults(self, made: Makers) -> Iterator[str]:
        kind, index = self.result.type, self.index.type
        if not isinstance(kind, Tile | Fragment):
            return
        size = kind.dtype.bytes
        if size not in (2, 4) or kind.dtype.bits < 16:
            yield f"load_shared needs elements of 16 or 32 bits, not {kind.dtype}"
        elif self.offset % size or self.bytes % size:
            yield f"bytes {self.offset} to {self.offset + self.bytes} are not multiples of {size}"
        elif not _is_index(index, kind):
            yield f"an index of {index} does not give {kind}"

    def item_align(self, made: Makers) -> int:
        return LINE_ALIGN


def _is_index(index: Type, kind: Tile | Fragment) -> bool:
    if isinstance(index, Fragment) and isinstance(kind, Fragment):
        return index.dtype.is_integer and (index.rows, index.columns) == (kind.rows, kind.columns)
    return isinstance(index, Tile) and isinstance(kind, Tile) and index.dtype.is_integer


@op_class(SCHEDULED, "warpgroup", ranges=dict(swizzle=ANY_ORDER, apart=APART))
class LoadPanels(OneResult):
    """Each warp of the warpgroup reads its 16 rows of a fragment (64 x w; or a tile of one line) in
    item `state.stage` of `shared`: lines `start` (i32) to `start` + 64 of the panels of a tile of
    `rows` lines, `offset` bytes in; or those of warps are `apart` lines apart. The stage may be
    released after a `fence_async_proxy`.
    """

    shared: Value
    offset: int = 0
    state: Value
    start: Value | None = None
    rows: int = 1
    swizzle: str
    apart: int = 16

    def effects(self, made: Makers) -> Effects:
        kind, span = self.result.as_fragment, SWIZZLE_SPAN[self.swizzle]
        size, reached = self.rows * span, lines_reached(self.apart) if kind.rows > 1 else 1
        spans = list[Span]()
        for panel in range(-(-kind.dtype.size(kind.columns) // span)):
            first = self.offset + panel * size
            within = first, first + size
            spans.append(Span(first, reached * span, scaled(self.start, span), within))
        yield Access("read", "smem", self.shared, self.state, (tuple(spans),))

    def faults(self, made: Makers) -> Iterator[str]:
        # Threads may begin anywhere in a single row.
        unit = TMA_ALIGN if self.start is None else 0
        yield from start_faults(self.offset, self.swizzle, unit)
        kind, span = self.result.type, SWIZZLE_SPAN[self.swizzle]
        if not isinstance(kind, Fragment) or kind.columns % 8:
            yield f"load_panels cannot load {kind}"
            return
        line = kind.dtype.size(kind.columns)
        last = lines_reached(self.apart) if kind.rows > 1 else 1
        if kind.rows == 1 and (self.rows != 1 or self.start is not None):
            yield "a fragment of one row needs a tile of one row and no `start`"
        elif self.apart != 16 and (self.start is None or self.swizzle in PACKED_SPAN):
            yield "`apart` needs a `start` and a tile that is not packed"
        elif max(kind.rows, last) > self.rows or (self.rows > 1 and line % span):
            yield f"{kind} does not fit a tile of {self.rows} rows of {span} bytes"

    def item_align(self, made: Makers) -> int:
        return LINE_ALIGN if self.swizzle == "none" else SMEM_ALIGN


@op_class(SCHEDULED, "warpgroup", any_lanes=True)
class StoreTransposed(Op):
    """The threads of the warpgroup write `parts`, fragments of the same columns that follow one
    another along their rows, to item `item` (i32) of `shared`, from its line `line` on: a column is
    a line, and as long as the parts have rows. Its bytes are exchanged by `step` (`line_place`).
    """

    parts: tuple[Value, ...]
    shared: Value
    item: Value
    line: int = 0
    step: int

    def effects(self, made: Makers) -> Effects:
        kinds = [part.as_fragment for part in self.parts]
        line = sum(kind.rows for kind in kinds) * kinds[0].dtype.bytes
        spans = whole(self.line * line, kinds[0].columns * line)
        yield Access("write", "smem", self.shared, self.item, spans)

    def faults(self, made: Makers) -> Iterator[str]:
        kinds = [v.type for v in self.parts]
        parts = [k for k in kinds if isinstance(k, Fragment)]
        if not parts or len({(k.dtype, k.columns, k.lanes) for k in parts}) > 1:
            yield "the parts may differ only in their rows"
            return
        fits = all(k.rows > 1 for k in parts) and parts[0].columns > 1 and len(parts) == len(kinds)
        yield from _transpose_faults(parts, sum(k.rows for k in parts), fits)


@op_class(SCHEDULED, "warpgroup", ranges=dict(first=BYTES), any_lanes=True)
class LoadTransposed(OneResult):
    """The threads of the warpgroup read what `store_transposed` wrote to item `item` (i32) of
    `shared`: the rows of the result are lines from `line` on, its columns the elements of them from
    `first` on. Lines have `length` elements, and were exchanged by `step`.
    """

    shared: Value
    item: Value
    line: int = 0
    first: int = 0
    length: int
    step: int

    def effects(self, made: Makers) -> Effects:
        kind = self.result.as_fragment
        line, rows = self.length * kind.dtype.bytes, kind.rows // WARPS
        first = [(self.line + warp * rows) * line for warp in range(WARPS)]
        spans = tuple([(Span(start, rows * line),) for start in first])
        yield Access("read", "smem", self.shared, self.item, spans)

    def faults(self, made: Makers) -> Iterator[str]:
        kind = self.result.type
        if not isinstance(kind, Fragment):
            yield f"{kind} has no rows"
            return
        fits = self.first + kind.columns <= self.length and min(kind.rows, kind.columns) > 1
        yield from _transpose_faults([kind], self.length, fits)


def _transpose_faults(parts: list[Fragment], length: int, fits: bool) -> Iterator[str]:
    """Yield why SMEM rows of `length` elements cannot transpose fragments."""
    dtype, size = parts[0].dtype, length * parts[0].dtype.bytes
    if not fits or dtype.bits < 8 or size % VECTOR or parts[0].lanes == ACCUMULATOR:
        yield f"{', '.join(map(str, parts))} cannot be transposed with rows of {size} bytes"
