"""SCHEDULED: wgmma, its operands and accumulators."""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir.attribute_checks import MAX_GROUPS, between
from wsdsl.ir.effects import Access, Arrive, Effects, Fence, Span, Wait, scaled
from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN, start_faults
from wsdsl.ir.hardware.wgmma_shapes import ROWS, columns_fault, k_step, may_be_mn_major, sum_of
from wsdsl.ir.op import (
    SCHEDULED,
    Makers,
    ManyResults,
    OneResult,
    Op,
    Unary,
    Value,
    op_class,
    with_fields,
)
from wsdsl.ir.types import DTYPES, Accumulator, DType, Fragment, MatrixDescriptor


@op_class(SCHEDULED, "any", pure=True, was="matrix_operand", result=MatrixDescriptor)
class SmemDescriptor(OneResult):
    """The smem descriptor of a wgmma operand: a tile in item `state.stage` of `shared`, `offset`
    bytes in, laid out as panels of `rows` x `columns` elements of `dtype`. `k_major`: the columns
    are the contraction, else (MN-major) the rows are. The operand begins `start` (i32; 0 if left
    out) elements along the other axis, M or N, and `first` along the contraction.
    """

    shared: Value
    offset: int = 0
    state: Value
    start: Value | None = None
    dtype: str
    rows: int
    columns: int
    swizzle: str
    k_major: bool = True
    first: int = 0

    def spans(self, extent: int, element: DType, k: int) -> tuple[Span, ...]:
        """Return the bytes of `extent` elements along M or N by `k` along the contraction, in
        whole swizzle atoms of 8 lines.
        """
        span = SWIZZLE_SPAN[self.swizzle]
        panel, last = self.rows * span, -(-element.size(self.columns) // span)
        if self.k_major:
            ends = 0, min(-(-element.size(self.first + k) // span), last)
            size, terms = extent, scaled(self.start, span)
        else:
            ends = 0, min(-(-element.size(extent) // span), last)
            size, terms = self.first + k, scaled(self.start, self.rows * element.bits // 8)
        size = min(-(-size // 8) * 8, self.rows) * span
        return tuple([Span(self.offset + p * panel, size, terms) for p in range(*ends)])

    def faults(self, made: Makers) -> Iterator[str]:
        yield from start_faults(self.offset, self.swizzle)
        line, span = DTYPES[self.dtype].size(self.columns), SWIZZLE_SPAN[self.swizzle]
        if self.rows % 8 or line % span:
            yield f"{self.rows} rows of {line} bytes are not multiples of 8 and {span}"


@op_class(SCHEDULED, "warpgroup", pure=True)
class EmptyAccumulator(OneResult):
    """An accumulator with undefined values; a first `wgmma` with `accumulate` false fills it."""


@op_class(())
class CompleteAccumulator(Unary):
    """Base of ops on the registers of an accumulator whose MMAs are complete."""


@op_class(SCHEDULED, "warpgroup", pure=True)
class AsAccumulator(CompleteAccumulator):
    """A fragment handed back to wgmma; the same registers."""


@op_class(SCHEDULED, "warpgroup", ptx="wgmma.fence")
class WgmmaFence(Op):
    """wgmma.fence: orders earlier accesses of registers before the wgmmas that follow."""

    def effects(self, made: Makers) -> Effects:
        yield Fence("wgmma")


class Mma:
    """Base of matrix multiply-accumulate ops, which run after they are issued."""

    dtype: str
    b_dtype: str
    columns: int

    @property
    def dtypes(self) -> tuple[str, str]:
        return self.dtype, self.b_dtype or self.dtype

    @property
    def num_columns(self) -> int:
        """Columns of b, where all launches have as many."""
        return self.columns


@op_class(
    SCHEDULED,
    "warpgroup",
    ranges=dict(widths=between(1, 8), columns=between(0, 256, 8)),
    was="wgmma",
)
class WgmmaMmaAsync(Mma, OneResult):
    """Start acc = a · b + (acc if `accumulate` else 0) on 64 x N x `k`, as wgmma instructions that
    take 32 bytes of each operand's line: `k` is a multiple of 16 for f16 and bf16, of 8 for tf32,
    of 32 for f8e4m3, f8e5m2, i8 and u8. `dtype` is that of the operands; `b_dtype` is b's, if it is
    not a's: the two fp8 types mix, and i8 with u8. Integers are summed in i32, others in f32; of
    tf32 the lower 13 bits are ignored. `accumulate` is a bool scalar. The result may be read after
    a `wgmma_wait` that covers its group. Only operands of 16 bits may be MN-major. `a` is a smem
    descriptor, or a 64 x k fragment of 16 or 8 bits in the layout of an operand (`convert_layout`),
    whose registers must have been written before the last `wgmma_fence`, and be kept by the
    `fragments` of the `wgmma_wait` that covers the group. With `columns` only the accumulator's
    first columns are added to, and the others are undefined; with `narrower`, one of `widths`
    multiples of 8 from 0 on, all but the last `narrower` columns. All wgmmas up to their
    `wgmma_commit` have the same value.
    """

    acc: Value
    a: Value
    b: Value
    accumulate: Value
    narrower: Value | None = None
    widths: int = 1
    columns: int = 0
    dtype: str
    b_dtype: str = ""
    k: int
    a_k_major: bool = True
    b_k_major: bool = True

    @property
    def num_columns(self) -> int:
        return self.columns or self.acc.type_as(Accumulator).columns

    def effects(self, made: Makers) -> Effects:
        for value, extent in (self.a, ROWS), (self.b, self.num_columns):
            descriptor = made.get(value)
            if isinstance(descriptor, SmemDescriptor):
                spans = descriptor.spans(extent, DTYPES[self.dtype], self.k)
                where = descriptor.shared, descriptor.state, (spans,)
                yield Access("read", "smem", *where, asynchronous=True)

    def faults(self, made: Makers) -> Iterator[str]:
        if self.narrower is None and self.widths != 1:
            yield f"widths={self.widths!r} needs `narrower`, which is missing"
        a, b = (DTYPES.get(name) for name in self.dtypes)
        total = sum_of(a, b) if a and b else None
        if a is None or total is None:
            yield f"wgmma cannot multiply {' and '.join(self.dtypes)}"
            return
        kind = self.acc.type
        if not isinstance(kind, Accumulator) or kind.rows != ROWS:
            yield "wgmma needs 64 rows and a multiple of 8 columns"
        elif fault := columns_fault(self.num_columns, a):
            yield fault
        elif self.columns > kind.columns:
            yield f"{self.columns} columns exceed an accumulator of {kind.columns} columns"
        elif kind.dtype != total:
            yield f"wgmma of {a} accumulates {total}, not {kind.dtype}"
        step = k_step(a)
        if self.k < step or self.k % step:
            yield f"k={self.k}: wgmma of {a} needs a multiple of {step}"
        if not (self.a_k_major and self.b_k_major) and not may_be_mn_major(a):
            yield f"an operand of {a} must be K-major"
        if isinstance(self.a.type, Fragment):
            yield from self._register_faults(self.a.type, a)
        majors = self.a_k_major, self.b_k_major
        for value, k_major, dtype in zip((self.a, self.b), majors, self.dtypes, strict=True):
            descriptor = made.get(value)
            if isinstance(descriptor, SmemDescriptor):
                yield from self._descriptor_faults(descriptor, k_major, dtype)

    def _register_faults(self, left: Fragment, a: DType) -> Iterator[str]:
        if not self.a_k_major:
            yield "an operand in registers must be K-major"
        if a.bits > 16:
            yield f"an operand in registers must have 16 or 8 bits, not {a}"
        if left.layout != "operand":
            yield f"{self.a} is {left}: use `convert_layout` to make it an operand"
        if (left.rows, left.columns) != (ROWS, self.k):
            yield f"an operand in registers must be {ROWS} x {self.k}"
        if left.dtype != a:
            yield f"an operand is {left.dtype}; the wgmma expects {a}"

    def _descriptor_faults(self, b: SmemDescriptor, k_major: bool, dtype: str) -> Iterator[str]:
        depth = b.columns if b.k_major else b.rows
        if b.dtype != dtype:
            yield f"an operand is {b.dtype}; the wgmma expects {dtype}"
        if b.k_major != k_major:
            yield f"{b.result} is {'K' if b.k_major else 'MN'}-major, unlike the MMA"
        elif b.first % k_step(DTYPES[b.dtype]):
            yield f"the operand starts at element {b.first} of K, within a K step"
        elif b.first + self.k > depth:
            yield f"K {b.first} to {b.first + self.k} exceeds an operand of {depth}"

    def at_width(self, columns: int) -> Op:
        left = self.acc.type_as(Accumulator).columns - columns if columns else 0
        return with_fields(self, columns=left, narrower=None, widths=1)


@op_class(SCHEDULED, "warpgroup", ptx="wgmma.commit_group")
class WgmmaCommit(Op):
    """Close the group of the wgmmas started since the last commit."""

    def effects(self, made: Makers) -> Effects:
        yield Arrive("wgmma")


@op_class(SCHEDULED, "warpgroup", ranges=dict(pending=between(0, MAX_GROUPS)))
class WgmmaWait(ManyResults):
    """Wait until at most `pending` groups are in flight. `accumulators`, whose groups are then
    done, come back as fragments that may be read. `fragments` are operands of those groups, whose
    registers stay as they are until here.
    """

    pending: int
    accumulators: tuple[Value, ...] = ()
    fragments: tuple[Value, ...] = ()

    def effects(self, made: Makers) -> Effects:
        yield Wait("wgmma", pending=self.pending)


@op_class(SCHEDULED, "warpgroup", pure=True)
class ZeroUnless(CompleteAccumulator):
    """`x` where the bool scalar `cond` holds, else zeros (x is then undefined: no wgmma ran)."""

    cond: Value
