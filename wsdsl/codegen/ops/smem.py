"""Stores of fragments to SMEM: a warp's 16 rows to its panel, or to its part of a panel of all four
warps; and zeros around the valid part of a tile.

The swizzle exchanges bits 4-6 of an address by bits 7-9, and a panel's lines are as long as the
swizzle's span: a thread's address is computed once, and its elements differ from it by an
exclusive-or with a constant (along a line) or a constant offset (across 8 lines).
"""

from __future__ import annotations

from wsdsl.codegen.addresses.smem_addresses import SWIZZLE_BITS, item_place, swizzled, warp_place
from wsdsl.codegen.arithmetic.bits import pack_halves, to_bits
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.fragment_registers import elements, join_bytes, texts_of
from wsdsl.codegen.inline_ptx import At, operands, st_shared
from wsdsl.codegen.llvm_types import is_packed
from wsdsl.codegen.ops import mbarrier
from wsdsl.codegen.value_registers import Registers, SharedAt
from wsdsl.codegen.writer import Writer
from wsdsl.diagnostics import CompileError
from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN
from wsdsl.ir.ops import AllocateShared, ClearPanels, StoreShared
from wsdsl.ir.printer import IR_HINT
from wsdsl.ir.types import DTYPES, THREADS, Shared
from wsdsl.record import record

CHUNK = 16
"""Bytes that a thread clears at a time."""


def convert_store_shared(c: Context, op: StoreShared) -> None:
    value, shared = c.registers(op.value), c.shared(op.shared)
    if op.state is not None:
        _store(c, value, _lines_of_tile(c, op, shared), False)
        return
    assert op.item is not None
    size = value.dtype.bytes
    lines, line = (value.columns, op.line) if op.transposed else (16, value.columns)
    span = max(line * size if op.swizzle == "none" else 0, SWIZZLE_SPAN[op.swizzle])
    room = shared.bytes // (1 if op.joined else 4) - op.before
    if line * size > span or lines * span > room or value.columns % 8:
        raise CompileError(
            f"WS0615 {lines} rows of {line * size} bytes do not fit a panel of rows of {span} "
            f"bytes in {room} bytes",
            op.loc,
            IR_HINT,
        )
    place = (item_place if op.joined else warp_place)(c, shared, c.scalar(op.item))
    place = At(place.base, place.offset + op.before)
    byte = c.w.multiply(c.threads.warp, 32) if op.joined else str(op.along)
    _store(c, value, _Panel(place, op.swizzle, span), op.transposed, byte)


def _lines_of_tile(c: Context, op: StoreShared, shared: SharedAt) -> _Panel:
    """The executing warp's lines of a tile's panels."""
    assert op.state is not None and op.start is not None
    w, span = c.w, SWIZZLE_SPAN[op.swizzle]
    first = w.add(c.scalar(op.start).text, w.multiply(c.threads.warp, op.apart))
    base = w.add(c.item(shared, c.state(op.state).stage), w.multiply(first, span))
    return _Panel(At(base, shared.offset + op.offset), op.swizzle, span, op.rows * span)


def _store(c: Context, value: Registers, to: _Panel, transposed: bool, byte: str = "0") -> None:
    if value.dtype.bits == 16:
        _store_matrices(c, value, to, transposed, byte)
    elif transposed:
        _store_elements(c, value, to, byte)
    else:
        _store_pairs(c, value, to)


@record
class _Panel:
    """Lines of `span` bytes each; longer rows continue in panels `apart` bytes further."""

    to: At
    swizzle: str
    span: int
    apart: int = 0

    def own(self, w: Writer, line: str, byte: str) -> str:
        """The address of a byte of a line."""
        return w.add(self.to.base, swizzled(w, w.multiply(line, self.span), byte, self.swizzle))

    def at(self, w: Writer, own: str, lines: int, byte: int) -> At:
        """The address `lines` lines, a multiple of 8, and `byte` bytes from there."""
        offset = self.to.offset + lines * self.span + byte // self.span * self.apart
        byte %= self.span
        if self.swizzle == "none":
            return At(own, offset + byte)
        return At(w.binary("xor", "i32", own, byte) if byte else own, offset)


def packed_pairs(w: Writer, value: Registers) -> tuple[str, ...]:
    """16-bit elements of any dtype as packed pairs."""
    if value.dtype.is_float:
        return value.texts
    texts = texts_of(w, value)
    pairs = zip(texts[::2], texts[1::2], strict=True)
    return tuple(pack_halves(w, "i16", *pair) for pair in pairs)


def _store_matrices(c: Context, value: Registers, to: _Panel, transposed: bool, byte: str) -> None:
    """stmatrix: each lane gives the address of one line of one 8 x 8 matrix, `byte` bytes in."""
    w, lane = c.w, c.threads.lane
    packed = packed_pairs(w, value)
    if transposed:
        # Lanes 0-7 address columns 0-7 of rows 0-7, 8-15 the same of rows 8-15, then columns 8-15.
        eight = w.multiply(w.binary("lshr", "i32", lane, 4), 8)
        line = w.add(w.binary("and", "i32", lane, 7), eight)
        half = w.binary("and", "i32", w.binary("lshr", "i32", lane, 3), 1)
    else:
        line = w.binary("and", "i32", lane, 15)
        half = w.binary("lshr", "i32", lane, 4)
    own = to.own(w, line, w.add(byte, w.multiply(half, 16)))
    for first in range(0, value.columns, 16):
        count = 4 if first + 16 <= value.columns else 2
        texts = packed[first // 4 : first // 4 + count]
        at = to.at(w, own, first, 0) if transposed else to.at(w, own, 0, 2 * first)
        ptx = f"stmatrix.sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}.shared.b16"
        args = [at.operand, *(("i32", x) for x in texts)]
        w.asm(f"{ptx} {at.ptx(0)}, {{{operands(1, count)}}};", args)


def _store_pairs(c: Context, value: Registers, to: _Panel) -> None:
    """Lines are rows: store two adjacent columns at once. For bytes, shuffles between lanes and
    stmatrix would take more instructions, and use the banks no better.
    """
    w, size = c.w, value.dtype.bytes
    texts, bits, count = _as_bits(w, value), value.dtype.bits, 2
    if bits == 8:
        packed = is_packed(value.dtype, value.columns)
        pairs = zip(texts[::2], texts[1::2], strict=True)
        texts = list(value.texts) if packed else [join_bytes(w, *pair) for pair in pairs]
        bits, count = 16, 1
    line = w.binary("lshr", "i32", c.threads.lane, 2)
    own = to.own(w, line, w.multiply(c.threads.column, size))
    for first in range(0, value.columns, 8):
        for half in (0, 1):
            e = (first // 4 + half) * count
            at = to.at(w, own, 8 * half, first * size)
            st_shared(w, at, bits, texts[e : e + count])


def _store_elements(c: Context, value: Registers, to: _Panel, byte: str) -> None:
    """Lines are columns: each element goes to a line of its own."""
    w, size = c.w, value.dtype.bytes
    texts = _as_bits(w, value)
    row = w.add(w.multiply(w.binary("lshr", "i32", c.threads.lane, 2), size), byte)
    for odd in (0, 1):
        own = to.own(w, w.add(c.threads.column, odd), row)
        for half in (0, 1):
            for first in range(0, value.columns, 8):
                e = first // 8 * 4 + 2 * half + odd
                at = to.at(w, own, first, 8 * size * half)
                st_shared(w, at, value.dtype.bits, texts[e : e + 1])


def _as_bits(w: Writer, value: Registers) -> list[str]:
    """Elements as i32, or as i16 if they are narrower; above a byte there may be anything."""
    if value.dtype.bits == 8 and is_packed(value.dtype, value.columns):
        return [x for pair in value.texts for x in (pair, w.binary("lshr", "i16", pair, 8))]
    return [to_bits(w, x, value.dtype) for x in elements(w, value)]


def convert_clear_panels(c: Context, op: ClearPanels) -> None:
    """Adjacent threads clear adjacent chunks of SMEM."""
    w, shared = c.w, c.shared(op.shared)
    base = w.add(c.item(shared, c.state(op.state).stage), shared.offset + op.offset)
    bytes = op.rows * op.columns * DTYPES[op.dtype].bytes
    own = w.multiply(w.binary("and", "i32", c.threads.tid, THREADS - 1), CHUNK)
    with w.counted_loop("clear", "0", bytes, THREADS * CHUNK) as start:
        place = w.add(own, start)
        with w.where(w.compare("slt", place, bytes)):
            _clear(c, op, At(w.add(base, place)), place)


def _clear(c: Context, op: ClearPanels, to: At, place: str) -> None:
    """Clear the part of a chunk, `place` bytes into the tile, that is outside of the valid part."""
    w, span, width = c.w, SWIZZLE_SPAN[op.swizzle], DTYPES[op.dtype].bytes
    panel = op.rows * span
    if op.lines:
        line = w.binary("udiv", "i32", w.binary("urem", "i32", place, panel), span)
        with w.where(_is_outside(c, op, line, 1)):
            st_shared(w, to, 32, ["0"] * 4)
        return
    bits = w.binary("and", "i32", w.binary("lshr", "i32", place, 3), SWIZZLE_BITS[op.swizzle])
    along = w.binary("urem", "i32", w.binary("xor", "i32", place, bits), span)
    before = w.multiply(w.binary("udiv", "i32", place, panel), span // width)
    element = w.add(before, w.binary("udiv", "i32", along, width))
    with w.where(_is_outside(c, op, element, CHUNK // width)):
        for i in range(CHUNK // width):
            at = At(to.base, to.offset + i * width)
            with w.where(_is_outside(c, op, w.add(element, i), 1)):
                st_shared(w, at, 8 * width, ["0"])


def _is_outside(c: Context, op: ClearPanels, at: str, num: int) -> str:
    """Whether any of `num` elements, or lines, from `at` on is outside."""
    w, begin, end = c.w, c.scalar(op.begin).text, c.scalar(op.end).text
    before, behind = w.compare("slt", at, begin), w.compare("sgt", w.add(at, num), end)
    return w.binary("or", "i1", before, behind)


def convert_allocate_shared(c: Context, op: AllocateShared) -> None:
    kind = op.result.type_as(Shared)
    c.values[op.result] = SharedAt(mbarrier.placed(op), kind.bytes, kind.num, op.label)
