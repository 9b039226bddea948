"""Reductions over columns: a tree over a thread's elements, then the lanes that share its rows
(`reduce_columns`), then the warps that share them, through SMEM (`store_partials`,
`reduce_partials`); and reductions over rows by the same steps.
"""

from collections.abc import Callable
from contextlib import nullcontext

from wsdsl.codegen import inline_ptx, nvvm
from wsdsl.codegen.addresses.smem_addresses import item_at
from wsdsl.codegen.arithmetic.bits import to_bits
from wsdsl.codegen.arithmetic.float_functions import F
from wsdsl.codegen.arithmetic.literals import f32_literal
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.fragment_registers import column_offset, first_row, row_offset
from wsdsl.codegen.inline_ptx import At, operands
from wsdsl.codegen.llvm_types import dtype_and_shape
from wsdsl.codegen.ops.reduction_blocks import (
    define_from_32_bits,
    in_32_bits,
    join_of,
    reduce_blocks,
)
from wsdsl.codegen.value_registers import Registers, Shape
from wsdsl.codegen.writer import Writer
from wsdsl.ir.ops import MmaSync, ReduceColumns, ReducePartials, StorePartials
from wsdsl.ir.types import F32, DType, Lanes

WORD, WARP = 4, 32
"""Bytes; lanes."""


def convert_reduce_columns(c: Context, op: ReduceColumns) -> None:
    x = c.registers(op.x)
    if op.size:
        reduce_blocks(c, op, x)
        return
    define_from_32_bits(c, op.result, x.dtype, _within_warp(c.w, op.fn, x))


def convert_mma_sync(c: Context, op: MmaSync) -> None:
    """Two sums at a time, since an instruction waits for the one before it adds to."""
    a, b = ([x for v in vs for x in c.registers(v).texts] for vs in (op.a, op.b))
    dtype = c.registers(op.a[0]).dtype
    parts = ", ".join(f"{{{operands(n, count)}}}" for n, count in ((0, 4), (4, 4), (8, 2), (10, 4)))
    ptx = f"mma.sync.aligned.m16n8k16.row.col.f32.{dtype}.{dtype}.f32 {parts};"
    sums = [[f32_literal(0.0)] * 4, [f32_literal(0.0)] * 4]
    for n in range(len(b) // 2):
        rows, vector = a[4 * n : 4 * n + 4], b[2 * n : 2 * n + 2]
        args = [*(("i32", x) for x in (*rows, *vector)), *(("float", x) for x in sums[n % 2])]
        sums[n % 2] = [*c.w.asm(ptx, args, ["float"] * 4, pure=True)]
    # Columns of the product are the same: of the first are the registers 0 and 2.
    totals = [F(c.w).add(sums[0][i], sums[1][i]) for i in (0, 2)]
    define_from_32_bits(c, op.result, F32, totals)


def convert_store_partials(c: Context, op: StorePartials) -> None:
    w, x = c.w, c.registers(op.x)
    lanes, threads = x.lanes, c.threads
    if op.over_rows:
        _store_columns(c, op, x)
        return
    totals = _within_warp(w, op.fn, x)
    words = [to_bits(w, t, F32) for t in totals] if x.dtype.is_float else totals
    part = "0" if op.part is None else c.scalar(op.part).text
    if lanes.warps > 1:
        own = w.binary("and", "i32", threads.warp, lanes.warps - 1)
        part = own if part == "0" else w.add(w.multiply(part, lanes.warps), own)
    if op.each:
        part = w.add(w.multiply(c.own_warpgroup(), op.each), part)
    row = "0" if x.rows == 1 else first_row(c, lanes, x.rows)
    place = w.multiply(w.add(w.multiply(part, x.rows), row), WORD)
    shared = c.shared(op.shared)
    base = w.add(c.item(shared, _item(c, op)), place)
    step = 1 if lanes.warps > 1 else lanes.rows
    start = shared.offset + op.offset
    places = [At(base, start + n * step * WORD) for n in range(len(words))]
    across = min(32, lanes.across)
    within = w.binary("and", "i32", threads.lane, across - 1)
    if op.barriers is None or op.state is None:
        with w.where(w.compare("eq", within, 0)):
            for at, word in zip(places, words, strict=True):
                inline_ptx.st_shared(w, at, 32, [word])
        return
    # All lanes that share a row have what it gives, and each sends it to one CTA.
    barrier = item_at(c, op.barriers, op.state)
    for first in range(0, op.ctas, across):
        left, cta = op.ctas - first, w.add(within, first)
        with nullcontext() if left >= across else w.where(w.compare("ult", within, left)):
            for at, word in zip(places, words, strict=True):
                inline_ptx.store_remote(w, at, barrier, cta, [word], shared.comment)


def convert_reduce_partials(c: Context, op: ReducePartials) -> None:
    w = c.w
    dtype, shape = dtype_and_shape(op.result.type)
    shared, lanes = c.shared(op.shared), shape.lanes
    base = c.item(shared, _item(c, op))
    if op.each:
        base = w.add(base, w.multiply(c.own_warpgroup(), op.each * shape.rows * WORD))
    if shape.rows > 1:
        base = w.add(base, w.multiply(first_row(c, lanes, shape.rows), WORD))
    join = join_of(w, op.fn, dtype)
    if op.over_rows and shape.columns > 1:
        define_from_32_bits(c, op.result, dtype, _reduced_columns(c, op, shape, dtype, join))
        return
    value = lanes.held(shape.rows) if shape.rows > 1 else 1
    step, start = 1 if lanes.warps > 1 else lanes.rows, shared.offset + op.offset
    results: list[str] = []
    for n in range(value):
        words: list[str] = []
        if shape.rows == 1 and op.parts % 4 == 0:
            for first in range(0, op.parts, 4):
                words += inline_ptx.ld_shared_words(w, At(base, start + first * WORD))
        else:
            for part in range(op.parts):
                place = (part * shape.rows + n * step) * WORD
                words.append(inline_ptx.ld_shared(w, At(base, start + place)))
        if dtype.is_float:
            words = [w.value(f"bitcast i32 {word} to float") for word in words]
        results.append(tree(words, join))
    define_from_32_bits(c, op.result, dtype, results)


def _item(c: Context, op: StorePartials | ReducePartials) -> str:
    return "0" if op.state is None else c.state(op.state).stage


def _store_columns(c: Context, op: StorePartials, x: Registers) -> None:
    """Of a warp's rows, by the lanes that have its first one."""
    w, lanes, threads = c.w, x.lanes, c.threads
    texts, type = in_32_bits(w, x)
    join = join_of(w, op.fn, x.dtype)
    columns: dict[int, list[str]] = {}
    for e, text in enumerate(texts):
        columns.setdefault(column_offset(e, x.shape), []).append(text)
    words: dict[int, str] = {}
    for offset in sorted(columns):
        total = tree(columns[offset], join)
        for step in range(lanes.across.bit_length() - 1, WARP.bit_length() - 1):
            total = join(total, nvvm.shuffle_xor(w, type, total, 1 << step))
        words[offset] = w.value(f"bitcast float {total} to i32") if x.dtype.is_float else total
    own = threads.warp
    if op.part is not None:
        own = w.add(w.multiply(c.scalar(op.part).text, 4), own)
    place = w.multiply(own, WORD * x.columns)
    runs = _runs(x.shape) if x.columns > 1 else [[0]]
    if x.columns > 1:
        place = w.add(place, _own_word(c, lanes, len(runs[0])))
    shared = c.shared(op.shared)
    base = w.add(c.item(shared, "0"), place)
    holders = lanes.across if x.columns > 1 else 1
    with w.where(w.compare("ult", threads.lane, holders)):
        for n, run in enumerate(runs):
            at = At(base, shared.offset + op.offset + n * lanes.across * len(run) * WORD)
            inline_ptx.st_shared(w, at, 32, [words[offset] for offset in run])


def _reduced_columns(
    c: Context, op: ReducePartials, shape: Shape, dtype: DType, join: Callable[[str, str], str]
) -> list[str]:
    w, shared, runs = c.w, c.shared(op.shared), _runs(shape)
    base = w.add(c.item(shared, "0"), _own_word(c, shape.lanes, len(runs[0])))
    type = "float" if dtype.is_float else "i32"
    results: list[str] = []
    for n, run in enumerate(runs):
        parts: list[tuple[str, ...]] = []
        for part in range(op.parts):
            word = part * shape.columns + n * shape.lanes.across * len(run)
            at = At(base, shared.offset + op.offset + word * WORD)
            match len(run):
                case 4:
                    words = inline_ptx.ld_shared_words(w, at)
                case 2:
                    words = inline_ptx.ld_shared_pair(w, at, 32)
                case _:
                    words = (inline_ptx.ld_shared(w, at),)
            if dtype.is_float:
                words = tuple(w.value(f"bitcast i32 {word} to float") for word in words)
            parts.append(words)
        totals = [tree(list(value), join) for value in zip(*parts, strict=True)]
        # Computed here: LLVM would add up where the result is used, and keep all parts till then.
        results += [w.asm_value("mov.b32 $0, $1;", [(type, x)], type) for x in totals]
    return results


def _own_word(c: Context, lanes: Lanes, size: int) -> str:
    """Where the first run of the lane is, in bytes. Those of the lanes that share a row follow each
    other, then come their next ones, so that no two of them ask the same banks of SMEM.
    """
    own = c.w.binary("and", "i32", c.threads.lane, lanes.across - 1)
    return c.w.multiply(own, size * WORD)


def _runs(shape: Shape) -> list[list[int]]:
    """Columns of a thread that lie side by side, less its first one: up to four, aligned."""
    lanes = shape.lanes
    size = 1 if lanes.striped else min(4, lanes.vector)
    offsets = [column_offset(e, Shape(1, *shape[1:])) for e in range(shape.columns // lanes.across)]
    return [offsets[n : n + size] for n in range(0, len(offsets), size)]


def _within_warp(w: Writer, fn: str, x: Registers) -> list[str]:
    """Of each row that a thread holds: f32, or an integer of 32 bits. One column all lanes of a row
    hold: it must not be counted by each.
    """
    texts, type = in_32_bits(w, x)
    if x.columns == 1:
        return texts
    join = join_of(w, fn, x.dtype)
    rows: dict[int, list[str]] = {}
    for e, text in enumerate(texts):
        rows.setdefault(row_offset(e, x.shape), []).append(text)
    results: list[str] = []
    for value in rows.values():
        total = tree(value, join)
        for step in range(min(32, x.lanes.across).bit_length() - 1):
            total = join(total, nvvm.shuffle_xor(w, type, total, 1 << step))
        results.append(total)
    return results


def tree(value: list[str], join: Callable[[str, str], str]) -> str:
    while len(value) > 1:
        odd = value[len(value) & ~1 :]
        value = [join(a, b) for a, b in zip(value[::2], value[1::2], strict=False)] + odd
    return value[0]
