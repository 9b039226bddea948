"""`load_panels`: fragments from tiles in SMEM, in panels that TMA wrote."""

from collections.abc import Sequence

from wsdsl.codegen import nvvm
from wsdsl.codegen.addresses.smem_addresses import swizzled
from wsdsl.codegen.arithmetic.bits import bools_of, from_bits, gathered, halves_of_word
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.fragment_registers import from_elements, texts_of
from wsdsl.codegen.inline_ptx import At, ld_shared, ld_shared_pair, ld_shared_words, operands
from wsdsl.codegen.llvm_types import dtype_and_shape, is_packed
from wsdsl.codegen.value_registers import Registers, Shape
from wsdsl.codegen.writer import Writer
from wsdsl.diagnostics import CompileError
from wsdsl.ir.hardware.swizzle import PACKED_LINES, PACKED_SPAN, SWIZZLE_SPAN
from wsdsl.ir.ops import LoadPanels, LoadShared
from wsdsl.ir.printer import IR_HINT
from wsdsl.ir.types import DType


def convert_load_panels(c: Context, op: LoadPanels) -> None:
    w, shared = c.w, c.shared(op.shared)
    dtype, shape = dtype_and_shape(op.result.type)
    rows, columns, _ = shape
    if columns % 8 or (dtype.bits < 8 and rows == 1):
        raise CompileError(f"WS0613 load_panels cannot load {op.result.type}", op.loc, IR_HINT)
    base = c.item(shared, c.state(op.state).stage)
    if op.start is not None:
        base = w.add(base, w.multiply(c.scalar(op.start).text, SWIZZLE_SPAN[op.swizzle]))
    if op.apart != 16:
        more = w.multiply(c.threads.warp, (op.apart - 16) * SWIZZLE_SPAN[op.swizzle])
        base = w.add(base, more)
    at = At(base, shared.offset + op.offset)
    if op.swizzle in PACKED_SPAN:
        c.values[op.result] = of_packed(c, dtype, shape, _packed(c, op, at, dtype, columns))
        return
    if rows == 1:
        texts = _line(c, at, dtype, columns)
    elif dtype.bits == 4:
        texts = _nibbles(c, op, at, columns)
    elif dtype.bits == 16:
        texts = _matrices(c, op, at, columns)
    else:
        texts = _pairs(c, op, at, dtype, columns)
    if dtype.bits == 32 or is_packed(dtype, columns):
        if dtype.name in ("f32", "tf32"):
            texts = [from_bits(w, text, dtype) for text in texts]
        c.values[op.result] = Registers(dtype, *shape, tuple(texts))
    elif dtype.bits == 8:
        c.values[op.result] = from_elements(w, dtype, shape, bools_of(w, texts, dtype))
    else:
        c.values[op.result] = _of_pairs(w, dtype, shape, texts)


def _of_pairs(w: Writer, dtype: DType, shape: Shape, texts: Sequence[str]) -> Registers:
    """Elements of 16 bits that are not held in pairs."""
    halves = [half for text in texts for half in halves_of_word(w, text)]
    return from_elements(w, dtype, shape, halves)


def of_packed(c: Context, dtype: DType, shape: Shape, words: list[str]) -> Registers:
    """A fragment of the words that a thread has of a packed tensor's blocks."""
    w, apart = c.w, list[str]()
    texts = words
    if dtype.bits == 8:
        apart = [x for word in words for x in (word, w.binary("lshr", "i32", word, 8))]
        texts = [gathered(w, x) for x in apart]
    elif dtype.bits == 4:
        texts = [w.binary("lshr", "i32", x, 4 * i) if i else x for x in words for i in range(4)]
    if is_packed(dtype, shape.columns):
        own = tuple(words) if dtype.bits < 16 else ()
        return Registers(dtype, *shape, tuple(texts), None, tuple(apart), own)
    return _of_pairs(w, dtype, shape, texts)


def _line(c: Context, at: At, dtype: DType, columns: int) -> list[str]:
    """All warps read the same line, all rows of lanes the same pairs of it."""
    own = c.w.add(at.base, c.w.multiply(c.threads.column, dtype.bytes))
    texts: list[str] = []
    for first in range(0, columns, 8):
        place = At(own, at.offset + first * dtype.bytes)
        texts += ld_shared_pair(c.w, place, dtype.bits)
    return texts


def _panels(op: LoadPanels, size: int, columns: int, step: int) -> list[tuple[int, int]]:
    """For every `step` columns: bytes to their panel, and bytes to them in its lines."""
    span = SWIZZLE_SPAN[op.swizzle]
    places = (first * size for first in range(0, columns, step))
    return [(byte // span * op.rows * span, byte % span) for byte in places]


def _matrices(c: Context, op: LoadPanels, at: At, columns: int) -> list[str]:
    """ldmatrix: each lane gives the address of one line of one 8 x 8 matrix."""
    w, lane, span = c.w, c.threads.lane, SWIZZLE_SPAN[op.swizzle]
    line = w.binary("and", "i32", lane, 15)
    start = w.multiply(w.add(w.multiply(c.threads.warp, 16), line), span)
    half = w.multiply(w.binary("lshr", "i32", lane, 4), 16)
    own = w.add(at.base, swizzled(w, start, half, op.swizzle))
    texts: list[str] = []
    for i, (panel, byte) in enumerate(_panels(op, 2, columns, 16)):
        count = 4 if 16 * (i + 1) <= columns else 2
        place = At(w.binary("xor", "i32", own, byte) if byte else own, at.offset + panel)
        ptx = f"ldmatrix.sync.aligned.m8n8.x{count}.shared.b16 {{{operands(0, count)}}}"
        texts += w.asm(f"{ptx}, {place.ptx(count)};", [place.operand], ["i32"] * count)
    return texts


def _pairs(c: Context, op: LoadPanels, at: At, dtype: DType, columns: int) -> list[str]:
    """Lines are rows: load two adjacent columns at once."""
    w, span = c.w, SWIZZLE_SPAN[op.swizzle]
    eighth = w.binary("lshr", "i32", c.threads.lane, 2)
    start = w.multiply(w.add(w.multiply(c.threads.warp, 16), eighth), span)
    own = w.add(at.base, swizzled(w, start, w.multiply(c.threads.column, dtype.bytes), op.swizzle))
    texts: list[str] = []
    for panel, byte in _panels(op, dtype.bytes, columns, 8):
        address = w.binary("xor", "i32", own, byte) if byte else own
        for half in (0, 1):
            place = At(address, at.offset + panel + 8 * half * span)
            texts += ld_shared_pair(w, place, dtype.bits)
    return texts


def _nibbles(c: Context, op: LoadPanels, at: At, columns: int) -> list[str]:
    """A thread's pair is a byte of four: all lanes of a line load 16 of its bytes at once, and each
    takes its own of every word, one nibble to each half of a register.
    """
    w, span = c.w, SWIZZLE_SPAN[op.swizzle]
    eighth = w.binary("lshr", "i32", c.threads.lane, 2)
    start = w.multiply(w.add(w.multiply(c.threads.warp, 16), eighth), span)
    own = w.add(at.base, swizzled(w, start, "0", op.swizzle))
    lane = w.binary("and", "i32", c.threads.lane, 3)
    # Bytes of a word, and of the same shifted by a nibble: one of each goes to bytes 0 and 2.
    selector = w.add(w.multiply(lane, 0x0101), 0x0400)
    words: tuple[list[str], list[str]] = [], []
    for byte in range(0, columns // 2, 16):
        address = w.binary("xor", "i32", own, byte % span) if byte % span else own
        panel = byte // span * op.rows * span
        for half in (0, 1):
            place = At(address, at.offset + panel + 8 * half * span)
            words[half].extend(ld_shared_words(w, place))
    return [
        nvvm.pick_bytes(w, word, w.binary("lshr", "i32", word, 4), selector)
        for eight in zip(*words, strict=True)
        for word in eight
    ]


def _packed(c: Context, op: LoadPanels, at: At, dtype: DType, columns: int) -> list[str]:
    """Vectors of 16 bytes, a thread's own (`packed_address`), as words."""
    w, span = c.w, SWIZZLE_SPAN[op.swizzle]
    thread = w.add(w.multiply(c.threads.warp, 32), c.threads.lane)
    own, words = w.add(at.base, w.multiply(thread, 16)), list[str]()
    for panel in range(dtype.size(columns) // span):
        for vector in range(0, PACKED_LINES * span, 16 * 128):
            place = At(own, at.offset + panel * op.rows * span + vector)
            words += ld_shared_words(w, place)
    return words


def convert_load_shared(c: Context, op: LoadShared) -> None:
    w, shared, index = c.w, c.shared(op.shared), c.registers(op.index)
    dtype, shape = dtype_and_shape(op.result.type)
    if dtype.bits not in (16, 32):
        message = f"WS0614 load_shared needs elements of 16 or 32 bits; {dtype} has {dtype.bits}"
        raise CompileError(message, op.loc, IR_HINT)
    item = c.item(shared, c.state(op.state).stage)
    if op.first is not None:
        item = w.add(item, w.multiply(c.scalar(op.first).text, dtype.bytes))
    step, first = dtype.bytes * op.stride, shared.offset + op.offset
    places: list[At] = []
    if index.affine is not None:
        base = w.add(item, w.multiply(index.affine.base, step))
        places = [At(base, first + step * offset) for offset in index.affine.offsets]
    else:
        places = [At(w.add(item, w.multiply(x, step)), first) for x in texts_of(w, index)]
    texts = [from_bits(w, ld_shared(w, at, dtype.bits), dtype) for at in places]
    c.define(op.result, from_elements(w, dtype, shape, texts))
