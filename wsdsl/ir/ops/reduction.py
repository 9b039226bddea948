"""SCHEDULED: reductions and scans over the columns of fragments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wsdsl.ir.attribute_checks import between
from wsdsl.ir.effects import RANK, Access, Arrive, Effects, Span, Term, scaled, whole
from wsdsl.ir.hardware.histogram_layout import WORD
from wsdsl.ir.hardware.wgmma_shapes import ROWS, k_step
from wsdsl.ir.op import SCHEDULED, Makers, OneResult, Op, Unary, Value, op_class
from wsdsl.ir.types import BF16, F16, F32, WARPS, Fragment, Tile, Type


@op_class(SCHEDULED, "warpgroup", ranges=dict(ctas=between(1, 16)), any_lanes=True)
class StorePartials(Op):
    """Each warp reduces its columns of the fragment `x` by `fn` ("add", "max" or "min"; f32, or
    integers of 32 bits), and writes the results of its rows, words of four bytes, to the item of
    `shared` at the state's stage, or the first, from `offset` on: parts one after another, of as
    many words as `x` has rows; one column is written unchanged. Warps that share rows have
    a part each, from `part` (i32; 0 without) times as many on; warpgroups that have separate rows,
    `each` parts, one after another. With `barriers` it goes to each of `ctas`, all of
    the cluster, where its bytes are then counted (st.async). With `over_rows` it reduces its rows,
    to a part with a word a column; `part` is the warpgroup.
    """

    fn: str
    x: Value
    shared: Value
    offset: int = 0
    over_rows: bool = False
    part: Value | None = None
    each: int = 0
    ctas: int = 1
    barriers: Value | None = None
    state: Value | None = None

    def effects(self, made: Makers) -> Effects:
        spans = tuple([self._part(warp) for warp in range(WARPS)])
        yield Access("write", "smem", self.shared, self.state, spans, ctas=self.ctas)
        if self.barriers is not None:
            bytes = sum(span.size for warp in spans for span in warp)
            yield Arrive("mbarrier", self.barriers, self.state, 0, -bytes, ctas=self.ctas)

    def _part(self, warp: int) -> tuple[Span, ...]:
        """Return the results of a warp: one row that several warps share is written once."""
        kind = self.x.as_fragment
        if self.over_rows:
            size = WORD * kind.columns
            return (Span(self.offset + warp * size, size, scaled(self.part, WARPS * size)),)
        group, own = divmod(warp, kind.lanes.warps)
        if group and kind.rows == 1:
            return ()
        rows, part = kind.lanes.of_warp(kind.rows), WORD * kind.rows
        terms: tuple[Term, ...] = scaled(self.part, part * kind.lanes.warps)
        if self.each:
            terms = (*terms, (RANK, part * self.each))
        start = self.offset + own * part + WORD * group * rows
        return (Span(start, WORD * rows, terms),)

    def faults(self, made: Makers) -> Iterator[str]:
        kind = self.x.type
        if self.over_rows and isinstance(kind, Fragment):
            if kind.rows == 1:
                yield f"{kind} has no rows to reduce"
            elif self.ctas > 1 or self.barriers or self.state or self.each:
                yield "a reduction of rows must stay within a CTA"
            elif kind.lanes.warps > 1:
                yield "warps share the rows"
        elif self.ctas > 1 and self.barriers is None:
            yield "`barriers` must count the bytes sent to other CTAs"


@op_class(SCHEDULED, "warpgroup", any_lanes=True)
class ReducePartials(OneResult):
    """Each thread of the warpgroup reduces, in order, the words that `store_partials` wrote for its
    rows, or columns (`over_rows`), of `parts` parts. The item, `offset` and `each` as there.
    """

    fn: str
    shared: Value
    offset: int = 0
    over_rows: bool = False
    parts: int
    each: int = 0
    state: Value | None = None

    def effects(self, made: Makers) -> Effects:
        kind = self.result.type
        count = 1
        if isinstance(kind, Fragment):
            count = kind.columns if self.over_rows else kind.rows
        terms: tuple[Term, ...] = ((RANK, WORD * count * self.each),) if self.each else ()
        spans = whole(self.offset, WORD * count * self.parts, *terms)
        yield Access("read", "smem", self.shared, self.state, spans)

    def faults(self, made: Makers) -> Iterator[str]:
        kind, across = self.result.type, "rows" if self.over_rows else "columns"
        if getattr(kind, across, 1) != 1:
            yield f"the result must have one element for all {across}, not {kind}"


@op_class(SCHEDULED, "warpgroup", pure=True, any_lanes=True)
class ReduceColumns(OneResult):
    """Reduce a fragment over its columns; `fn` is "add", "max" or "min". 64 rows give 64 x 1, one
    row (the same in all rows) gives a scalar. Every lane gets the result. With `size`, a power of
    two that divides the columns, each block of `size` columns is reduced, and the result has the
    columns of `x`: all columns of a block have its result.
    """

    fn: str
    x: Value
    size: int = 0

    def faults(self, made: Makers) -> Iterator[str]:
        x, kind = self.x.type, self.result.type
        if not isinstance(x, Fragment):
            return
        one = Tile(x.dtype) if x.rows == 1 else replace(x, columns=1)
        if kind != (x if self.size else one) or (self.size and x.columns % self.size):
            yield f"reducing the columns of {x} does not give {kind}"
        elif x.lanes.striped and self.size:
            yield f"lanes of a striped {x} have no blocks of adjacent columns"
        elif x.lanes.warps > 1 and (self.size or x.columns) > 32 * x.lanes.vector:
            yield f"warps share the columns of {x}: use store_partials, reduce_partials"


@op_class(SCHEDULED, "warpgroup", pure=True)
class MmaSync(OneResult):
    """The product of rows and a vector, f32[64x1], by mma.sync.m16n8k16, all of whose columns of B
    are the vector: the sum over the columns of each fragment of `a`, 64 x K of f16 or bf16, times
    that of `b`, 1 x K of the same type. Products are exact, sums f32. Every lane gets the result.
    """

    a: tuple[Value, ...]
    b: tuple[Value, ...]

    def faults(self, made: Makers) -> Iterator[str]:
        kinds = [(x.type, y.type) for x, y in zip(self.a, self.b, strict=False)]
        fits = all(_multiplies(x, y) for x, y in kinds) and len(self.a) == len(self.b) > 0
        if not fits or self.result.type != Fragment(F32, ROWS, 1):
            pairs = ", ".join(f"{x} by {y}" for x, y in kinds)
            yield f"mma_sync cannot multiply {pairs} to {self.result.type}"


def _multiplies(x: Type, y: Type) -> bool:
    """Return whether `mma_sync` takes a fragment and a vector."""
    return (
        isinstance(x, Fragment)
        and x == Fragment(x.dtype, ROWS, x.columns)
        and y == Fragment(x.dtype, 1, x.columns)
        and x.dtype in (F16, BF16)
        and x.columns % k_step(x.dtype) == 0
    )


@op_class(SCHEDULED, "warpgroup", pure=True, any_lanes=True)
class ScanColumns(Unary):
    """The inclusive prefix sum of the elements of a row; of floats in f32."""

    def faults(self, made: Makers) -> Iterator[str]:
        x, kind = self.x.type, self.result.type
        if isinstance(x, Fragment) and (kind != x or x.lanes.warps > 1 or x.lanes.striped):
            yield f"a scan of the columns of {x} within a warp does not give {kind}"
