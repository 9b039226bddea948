"""SCHEDULED: SMEM, tensor maps, TMA copies and direct accesses to global memory.

A tile lies in SMEM as *panels*: its contiguous axis (`columns`) is cut into spans of the swizzle
mode's width (128, 64 or 32 bytes; "none": 16), and each panel is `rows` lines of one span, panels
one after another. Bits of the address are exchanged within a panel as TMA does (`swizzle_address`
in `ir/hardware/swizzle.py`). An item starts at a multiple of 1024 bytes, so do the 8-row atoms of
its panels.
"""

from __future__ import annotations

from wsdsl.ir.attribute_checks import ANY_ORDER, APART, BYTES, PLACE, between
from wsdsl.ir.effects import Access, Effects, Span, scaled, whole
from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN, lines_reached
from wsdsl.ir.op import SCHEDULED, Makers, OneResult, Op, Value, op_class
from wsdsl.ir.types import DTYPES, WARPS, Shared


@op_class(SCHEDULED, "kernel", ranges=dict(offset=PLACE))
class AllocateShared(OneResult):
    """SMEM for `num` items of `bytes` bytes (see its type), at `offset` (-1: not placed)."""

    label: str
    offset: int = -1


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


@op_class(SCHEDULED, "warpgroup")
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


@op_class(SCHEDULED, "warpgroup", ranges=dict(first=BYTES))
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
