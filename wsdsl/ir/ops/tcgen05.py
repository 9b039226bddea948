"""SCHEDULED: tensor memory, and the products that one thread starts on it (tcgen05).

Tensor memory has 128 lanes of 512 columns of 32 bits. Warp w of a warpgroup reads lanes 32w to
32w + 31 alone. Products of one thread, and its commits, run in the order of their issue; nothing
else is ordered with them but by mbarriers and `tcgen05_fence`.

With `cta_group` 2, which all ops of a kernel have, or none, two CTAs of a cluster work as a pair,
those of ranks 2i and 2i + 1: they allocate and free together, the same columns, and a thread of the
first starts what both do.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir.attribute_checks import COLUMN, HALF, PLACE, between, one_of
from wsdsl.ir.effects import RANK, Access, Arrive, Effects, Fence, Span, Wait, whole
from wsdsl.ir.hardware.block_scale_factors import (
    COLUMN_STEP,
    TILE_COLUMNS,
    WORD,
    are_scaled,
    kind_of,
    scale_columns,
    word_columns,
)
from wsdsl.ir.hardware.block_scale_factors import ROWS as SCALED_ROWS
from wsdsl.ir.hardware.scale_factor_atoms import BYTES, ROWS, atoms_of
from wsdsl.ir.hardware.tcgen05_shapes import (
    ADDRESS_BYTES,
    COLUMNS,
    LANES,
    LEAST_ALLOCATED,
    STORED_BITS,
    cell_columns,
    pair_fault,
    shape_fault,
)
from wsdsl.ir.hardware.tma_box import LINE_ALIGN
from wsdsl.ir.hardware.wgmma_shapes import MAX_COLUMNS, k_step, may_be_mn_major, sum_of
from wsdsl.ir.op import (
    SCHEDULED,
    Makers,
    ManyResults,
    OneResult,
    Op,
    Value,
    op_class,
)
from wsdsl.ir.ops.wgmma import Mma, SmemDescriptor
from wsdsl.ir.types import (
    ACCUMULATOR,
    DTYPES,
    Accumulator,
    Columns,
    DType,
    Fragment,
    MatrixDescriptor,
    TensorMemory,
)


@op_class(
    SCHEDULED, "cta", was="allocate_tensor_memory", ranges=dict(offset=PLACE), result=TensorMemory
)
class Tcgen05Alloc(OneResult):
    """The CTA's first warp allocates the columns of the result's type for the whole kernel, lets
    other CTAs of its SM allocate, and writes the address to the 32-bit cell at `offset` in SMEM
    (-1: not yet placed). It waits until enough columns are free. Run once by all threads before
    the partitions; threads that synchronize after it (`sync_cta`), with a `tcgen05_fence` before
    and after, may use them.
    """

    offset: int = -1
    cta_group: int = 1

    @property
    def smem_bytes(self) -> int:
        return ADDRESS_BYTES

    def faults(self, made: Makers) -> Iterator[str]:
        num = self.result.type_as(TensorMemory).columns
        if not LEAST_ALLOCATED <= num <= COLUMNS or num & (num - 1):
            yield f"{num} columns: not a power of two from {LEAST_ALLOCATED} to {COLUMNS}"


@op_class(SCHEDULED, "cta", was="free_tensor_memory")
class Tcgen05Dealloc(Op):
    """The CTA's first warp frees all columns. Run once by all threads after the partitions, when
    all threads have synchronized, with a `tcgen05_fence` before and after.
    """

    memory: Value
    cta_group: int = 1

    def effects(self, made: Makers) -> Effects:
        yield Access("read", "smem", self.memory)
        yield Access("write", "tmem", None, pair=self.cta_group > 1)


@op_class(SCHEDULED, "kernel", was="tensor_columns", ranges=dict(first=COLUMN), result=Columns)
class TmemColumns(OneResult):
    """`num` items of `columns` columns of `memory`, from its column `first` on."""

    label: str
    memory: Value
    first: int = 0

    def effects(self, made: Makers) -> Effects:
        yield Access("read", "smem", self.memory)

    def faults(self, made: Makers) -> Iterator[str]:
        allocated, kind = self.memory.type_as(TensorMemory), self.result.type_as(Columns)
        end = self.first + kind.columns * kind.num
        if end > allocated.columns:
            yield f"ends at column {end}; {allocated.columns} columns are allocated"


@op_class(
    SCHEDULED,
    "one",
    was="tensor_product",
    ranges=dict(rows=one_of(64, 128), columns=between(8, 256, 8)),
)
class Tcgen05Mma(Mma, Op):
    """Start d = a · b + (d if `accumulate` else 0) on `rows` x `columns` x `k` (tcgen05.mma), where
    d lies in item `state.stage` of `sums`, from its column `column` on: an element a cell, sums of
    floats as f32, of integers as i32. `rows` is 128, row m in lane m, or 64, row m in lane
    32 (m / 16) + m % 16. Operands are smem descriptors, or a is columns of tensor memory: then its
    rows lie in the lanes of d's, in item `a_state.stage` from column `a_column` on, as
    `tcgen05_st` writes them. Of each instruction operands take 32 bytes of a line. `dtype` is
    that of the operands; `b_dtype` is b's, if it is not a's. Complete, and done reading, when a
    `tcgen05_commit` that follows has arrived.

    With `scales` each `block` elements of a line are multiplied by one, of type `scale_dtype`: a's
    lie in item `scale_state.stage`, from its column `a_scale` on, b's from `b_scale` on, each row's
    in lane i % 32 of every quarter, as `store_scale_factors` writes them.

    Of a pair each CTA has `rows` rows of d and of a, with a's scales; half of b's rows, the first
    CTA the first half; and all scales of b.
    """

    sums: Value
    state: Value
    column: int = 0
    a: Value
    a_state: Value | None = None
    a_column: int = 0
    b: Value
    accumulate: Value
    dtype: str
    b_dtype: str = ""
    rows: int
    columns: int
    k: int
    a_k_major: bool = True
    b_k_major: bool = True
    scales: Value | None = None
    scale_state: Value | None = None
    a_scale: int = 0
    b_scale: int = 0
    block: int = 0
    scale_dtype: str = ""
    cta_group: int = 1

    @property
    def a_columns(self) -> int:
        """Of tensor memory, that a takes if it lies there."""
        return cell_columns(DTYPES[self.dtype], self.k)

    def effects(self, made: Makers) -> Effects:
        pair = self.cta_group > 1
        halves = (0, 1) if self.rows == LANES else (0,)
        spans = tuple([Span(self.column, self.columns, half=half) for half in halves])
        yield Access("write", "tmem", self.sums, self.state, (spans,), True, pair=pair)
        if self.scales is not None:
            words = self.k // (WORD * self.block)
            for column, rows in (self.a_scale, self.rows), (self.b_scale, self.columns):
                spans = _words(column, rows, words)
                yield Access(
                    "read", "tmem", self.scales, self.scale_state, (spans,), True, pair=pair
                )
        extents = self.rows, self.columns // self.cta_group
        for value, extent, dtype in zip((self.a, self.b), extents, self.dtypes, strict=True):
            descriptor = made.get(value)
            if isinstance(value.type, Columns):
                spans = tuple([Span(self.a_column, self.a_columns, half=half) for half in halves])
                yield Access("read", "tmem", value, self.a_state, (spans,), True)
            elif isinstance(descriptor, SmemDescriptor):
                spans = descriptor.spans(extent, DTYPES[dtype], self.k)
                where = descriptor.shared, descriptor.state, (spans,)
                yield Access("read", "smem", *where, asynchronous=True, pair=pair)

    def faults(self, made: Makers) -> Iterator[str]:
        a, b = (DTYPES.get(name) for name in self.dtypes)
        total = (are_scaled if self.scales is not None else sum_of)(a, b) if a and b else None
        if a is None or total is None:
            yield f"tcgen05.mma cannot multiply {' and '.join(self.dtypes)}"
            return
        fault = shape_fault(self.rows, self.columns, a, self.cta_group)
        if fault and self.scales is None:
            yield fault
        if self.k < k_step(a) or self.k % k_step(a):
            yield f"k={self.k}: tcgen05.mma of {a} needs a multiple of {k_step(a)}"
        if not (self.a_k_major and self.b_k_major) and not may_be_mn_major(a):
            yield f"an operand of {a} must be K-major"
        yield from _column_faults(self.sums, self.column, self.columns)
        yield from self._operand_faults(a, made)
        yield from self._scale_faults()

    def _operand_faults(self, a: DType, made: Makers) -> Iterator[str]:
        extents = self.rows, self.columns // self.cta_group
        operands = ((self.a, self.a_k_major), (self.b, self.b_k_major))
        for (value, k_major), extent, dtype in zip(operands, extents, self.dtypes, strict=True):
            descriptor = made.get(value)
            if value is self.a and isinstance(value.type, Columns):
                yield from _column_faults(self.a, self.a_column, self.a_columns)
                if self.a_state is None:
                    yield f"a_state must name the item of {self.a}"
                if a.bits not in STORED_BITS or not self.a_k_major:
                    yield f"an operand in tensor memory must be K-major, of 16 or 32 bits, not {a}"
                if self.cta_group > 1 or self.scales is not None:
                    yield "an MMA of a CTA pair or with scale factors cannot read operands in TMEM"
            elif not isinstance(value.type, MatrixDescriptor):
                yield f"{value} is not an smem descriptor"
            elif isinstance(descriptor, SmemDescriptor):
                b = descriptor
                along, deep = (b.rows, b.columns) if b.k_major else (b.columns, b.rows)
                if (b.dtype, b.k_major) != (dtype, k_major):
                    yield f"{value} is {b.dtype} with k_major={b.k_major}, unlike the MMA"
                if extent > along or b.first + self.k > deep:
                    yield f"{extent} x {self.k} elements exceed a tile of {along} x {deep}"

    def _scale_faults(self) -> Iterator[str]:
        given = self.scales is not None, self.scale_state is not None
        given = *given, bool(self.block), bool(self.scale_dtype)
        if len({*given}) > 1 or (not given[0] and (self.a_scale or self.b_scale)):
            yield "columns, state, type and block of scale factors must all be given, or none"
        if not all(given):
            return
        kind = kind_of(*self.dtypes, self.scale_dtype, self.block)
        if kind is None:
            scales = f"blocks of {self.block} with {self.scale_dtype} scale factors"
            yield f"tcgen05.mma does not support {scales} for {' and '.join(self.dtypes)}"
            return
        if self.rows != SCALED_ROWS:
            yield f"tcgen05.mma with scale factors needs {SCALED_ROWS} rows, not {self.rows}"
        if self.cta_group > 1 and (fault := pair_fault(self.rows, self.columns)):
            yield fault
        if not COLUMN_STEP <= self.columns <= MAX_COLUMNS or self.columns % COLUMN_STEP:
            legal = f"{COLUMN_STEP} to {MAX_COLUMNS} columns in steps of {COLUMN_STEP}"
            yield f"tcgen05.mma with scale factors needs {legal}, not {self.columns}"
        if not self.k or self.k % kind.word:
            yield f"k={self.k}: scale factors of {kind.word} elements are packed in a 32-bit group"
        if not (self.a_k_major and self.b_k_major):
            yield "operands with scale factors must be K-major"
        if self.scales == self.sums:
            yield "scale factors and accumulators must be in different columns"


@op_class(SCHEDULED, "one", was="tensor_commit")
class Tcgen05Commit(Op):
    """Arrive once on the barrier of the state's stage when all products that this thread has
    started are complete. A `tcgen05_fence` in front is part of it. With `multicast` (a mask of
    ranks in the cluster) on that barrier of each of these CTAs.
    """

    barriers: Value
    state: Value
    multicast: Value | None = None
    cta_group: int = 1

    def effects(self, made: Makers) -> Effects:
        where = "mbarrier", self.barriers, self.state
        yield Arrive(*where, threads="one", multicast=self.multicast, asynchronous=True)


@op_class(SCHEDULED, "warpgroup", was="tensor_load", ranges=HALF)
class Tcgen05Ld(OneResult):
    """Start to read columns of item `state.stage` of `sums`, from `column` on, as many as the
    result has: 64 rows; warp w has those of lanes 32w + 16 `half` to 32w + 16 `half` + 15.
    The next warpgroup of a partition reads those that lie `apart` columns behind. Only
    `tcgen05_wait_ld` may take the result.
    """

    sums: Value
    state: Value
    column: int = 0
    half: int = 0
    apart: int = 0

    @property
    def width(self) -> int:
        """Columns of tensor memory."""
        return self.result.type_as(Accumulator).columns

    def effects(self, made: Makers) -> Effects:
        spans = _by_rank(self.column, self.width, self.apart, self.half)
        yield Access("read", "tmem", self.sums, self.state, spans, True)

    def faults(self, made: Makers) -> Iterator[str]:
        kind = self.result.type
        if not isinstance(kind, Accumulator) or kind.rows != 64 or kind.columns % 8:
            yield f"a load needs 64 rows and a multiple of 8 columns, not {kind}"
            return
        if kind.dtype.bits != 32:
            yield f"cells of tensor memory have 32 bits, not {kind.dtype}"
        yield from _column_faults(self.sums, self.column, kind.columns)


@op_class(SCHEDULED, "warpgroup", was="tensor_store", ranges=HALF)
class Tcgen05St(Op):
    """Start to write the fragment `value`, in the lanes of an accumulator, to item `state.stage` of
    `columns`, from its column `column` on: its 64 rows to the lanes that `tcgen05_ld` reads for
    `half`, elements of 32 bits a cell each, two of 16 bits to a cell; the next warpgroup's `apart`
    columns behind. It writes nothing that the thread still loads: behind a `tcgen05_ld` of these
    lanes and columns is a `tcgen05_wait_ld`.
    """

    value: Value
    columns: Value
    state: Value
    column: int = 0
    half: int = 0
    apart: int = 0

    @property
    def width(self) -> int:
        """Columns of tensor memory."""
        kind = self.value.as_fragment
        return cell_columns(kind.dtype, kind.columns)

    def effects(self, made: Makers) -> Effects:
        spans = _by_rank(self.column, self.width, self.apart, self.half)
        yield Access("write", "tmem", self.columns, self.state, spans, True)

    def faults(self, made: Makers) -> Iterator[str]:
        kind = self.value.as_fragment
        whole = kind.rows == 64 and kind.lanes == ACCUMULATOR and not kind.columns % 8
        if not whole or kind.dtype.bits not in STORED_BITS:
            yield f"a store needs 64 rows, columns in steps of 8, 16 or 32 bits, not {kind}"
        else:
            yield from _column_faults(self.columns, self.column, self.width)


@op_class(
    SCHEDULED,
    "warpgroup",
    was="store_scales",
    ranges=dict(line=between(4, 4096, 4), rows=between(8, 256, 8)),
)
class StoreScaleFactors(Op):
    """Start to write scales of `rows` rows, `words` words of four a row, to item `state.stage` of
    `scales`, from column `column` on: word w of row i to lane i % 32 of each quarter of the lanes,
    column i / 32 + w times those of all rows, in whole tiles of 128. All four warps write their
    quarters. They read them in item `shared_state.stage` of `shared`, `offset` bytes in: lines of
    `line` bytes, the scales from byte `first` (a multiple of 4) of each on. Of the first `valid`
    bytes of a row, where it is given; others are written as 0. Or, with `atoms`, in atoms as
    `tcgen05_cp` does, `line` bytes those of the same rows, from row `first` of the first one on.
    """

    scales: Value
    state: Value
    column: int = 0
    shared: Value
    shared_state: Value
    offset: int = 0
    line: int
    first: Value
    valid: Value | None = None
    rows: int
    words: int = 1
    atoms: bool = False

    @property
    def bytes(self) -> int:
        """Of SMEM, in which they lie."""
        return self.line * (atoms_of(self.rows) if self.atoms else self.rows)

    def effects(self, made: Makers) -> Effects:
        yield Access("read", "smem", self.shared, self.shared_state, whole(self.offset, self.bytes))
        spans = _words(self.column, self.rows, self.words)
        yield Access("write", "tmem", self.scales, self.state, (spans,), True)

    def faults(self, made: Makers) -> Iterator[str]:
        yield from _scale_column_faults(self.scales, self.column, self.rows, self.words)
        words = f"{self.words} words per row of {self.line} bytes"
        if self.atoms and self.line != BYTES * self.words:
            yield f"{words}; an atom has {BYTES * self.words} bytes per row"
        elif WORD * self.words > self.line:
            yield words


@op_class(SCHEDULED, "one", was="tensor_copy", ranges=dict(rows=between(128, 256, 128)))
class Tcgen05Cp(Op):
    """Start to copy scales of `rows` rows, `words` words a row, to item `state.stage` of `scales`,
    from column `column` on, in the layout of `store_scale_factors` (tcgen05.cp). They are
    read in item `shared_state.stage` of `shared`, `offset` bytes in, as atoms of 512 bytes, those
    of the same rows one after another. It runs in the order of the thread's MMAs. Each CTA
    of a pair copies from its SMEM.
    """

    scales: Value
    state: Value
    column: int = 0
    shared: Value
    shared_state: Value
    offset: int = 0
    rows: int
    words: int = 1
    cta_group: int = 1

    def effects(self, made: Makers) -> Effects:
        pair, size = self.cta_group > 1, BYTES * (self.rows // ROWS) * self.words
        source = self.shared, self.shared_state, whole(self.offset, size)
        yield Access("read", "smem", *source, asynchronous=True, pair=pair)
        target = self.scales, self.state, whole(self.column, scale_columns(self.rows, self.words))
        yield Access("write", "tmem", *target, asynchronous=True, pair=pair)

    def faults(self, made: Makers) -> Iterator[str]:
        yield from _scale_column_faults(self.scales, self.column, self.rows, self.words)
        if self.offset % LINE_ALIGN:
            yield f"atoms of scale factors must start at a multiple of {LINE_ALIGN} bytes"
        if self.scales.type_as(Columns).num != 1:
            yield "copied scale factors must have one item"


@op_class(SCHEDULED, "warpgroup", ptx="tcgen05.wait::st", was="tensor_store_wait")
class Tcgen05WaitSt(Op):
    """Wait until all `tcgen05_st`s and `store_scale_factors` of the thread are complete."""

    def effects(self, made: Makers) -> Effects:
        yield Wait("tcgen05.st")


@op_class(SCHEDULED, "warpgroup", ptx="tcgen05.wait::ld", was="tensor_wait")
class Tcgen05WaitLd(ManyResults):
    """Wait until all `tcgen05_ld`s of the thread are complete; the results are the `loads` as
    fragments that may be read.
    """

    loads: tuple[Value, ...]

    def effects(self, made: Makers) -> Effects:
        yield Wait("tcgen05.ld")

    def faults(self, made: Makers) -> Iterator[str]:
        for load, value in zip(self.loads, self.result, strict=False):
            kind = load.type_as(Accumulator)
            if value.type != Fragment(kind.dtype, kind.rows, kind.columns):
                yield f"tcgen05_wait_ld of {load} cannot give {value.type}"
        if len(self.loads) != len(self.result):
            yield f"{len(self.loads)} loads and {len(self.result)} results differ in number"


@op_class(SCHEDULED, "any", was="tensor_fence")
class Tcgen05Fence(Op):
    """Order accesses of tensor memory with the synchronization of threads: with `after`, later
    accesses follow the waits before this op; else earlier accesses precede the arrivals after it.
    """

    after: bool = False

    def effects(self, made: Makers) -> Effects:
        yield Fence("tmem")


def _by_rank(column: int, width: int, apart: int, half: int) -> tuple[tuple[Span, ...], ...]:
    """Return the columns of a warpgroup, `apart` columns after those of the previous one."""
    return ((Span(column, width, ((RANK, apart),) if apart else (), half=half),),)


def _words(column: int, rows: int, words: int) -> tuple[Span, ...]:
    """Return the columns of the scale factors of `rows` rows."""
    found = word_columns(rows, words)
    return tuple([Span(column + own.start, len(own)) for own in found])


def _column_faults(items: Value, column: int, columns: int) -> Iterator[str]:
    kind = items.type
    if not isinstance(kind, Columns):
        yield f"{items} is not a range of TMEM columns"
    elif column < 0 or column + columns > kind.columns:
        yield f"columns {column} to {column + columns} exceed an item of {kind.columns} columns"


def _scale_column_faults(scales: Value, column: int, rows: int, words: int) -> Iterator[str]:
    yield from _column_faults(scales, column, scale_columns(rows, words))
    if column % TILE_COLUMNS:
        yield f"column {column} is not a multiple of {TILE_COLUMNS}"
