"""SCHEDULED: reductions and scans over the columns of fragments."""

from __future__ import annotations

from wsdsl.ir.attribute_checks import between
from wsdsl.ir.effects import RANK, Access, Arrive, Effects, Span, Term, scaled, whole
from wsdsl.ir.hardware.histogram_layout import WORD
from wsdsl.ir.op import (
    SCHEDULED,
    Makers,
    OneResult,
    Op,
    Unary,
    Value,
    op_class,
)
from wsdsl.ir.types import WARPS, Fragment


@op_class(SCHEDULED, "warpgroup", ranges=dict(ctas=between(1, 16)))
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


@op_class(SCHEDULED, "warpgroup")
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


@op_class(SCHEDULED, "warpgroup", pure=True)
class ReduceColumns(OneResult):
    """Reduce a fragment over its columns; `fn` is "add", "max" or "min". 64 rows give 64 x 1, one
    row (the same in all rows) gives a scalar. Every lane gets the result. With `size`, a power of
    two that divides the columns, each block of `size` columns is reduced, and the result has the
    columns of `x`: all columns of a block have its result.
    """

    fn: str
    x: Value
    size: int = 0


@op_class(SCHEDULED, "warpgroup", pure=True)
class MmaSync(OneResult):
    """The product of rows and a vector, f32[64x1], by mma.sync.m16n8k16, all of whose columns of B
    are the vector: the sum over the columns of each fragment of `a`, 64 x K of f16 or bf16, times
    that of `b`, 1 x K of the same type. Products are exact, sums f32. Every lane gets the result.
    """

    a: tuple[Value, ...]
    b: tuple[Value, ...]


@op_class(SCHEDULED, "warpgroup", pure=True)
class ScanColumns(Unary):
    """The inclusive prefix sum of the elements of a row; of floats in f32."""
