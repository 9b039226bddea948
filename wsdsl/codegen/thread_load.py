"""`thread_load`: what TMA can not take, copied element by element by a warpgroup's threads.

A thread fills 16 bytes of SMEM at a time, a multiple of 16 bytes being what a line is: neighbouring
threads read neighbouring pieces, and one piece is one store.
"""

from __future__ import annotations

from wsdsl.codegen import inline_ptx
from wsdsl.codegen.context import Context
from wsdsl.codegen.inline_ptx import At, Global
from wsdsl.codegen.shared_stores import SWIZZLE_BITS
from wsdsl.diagnostics import CompileError, Finding
from wsdsl.ir.memory_ops import ThreadLoad
from wsdsl.ir.target import SWIZZLE_SPAN
from wsdsl.ir.types import Tensor

PIECE = 16
THREADS = 128


def convert_thread_load(c: Context, op: ThreadLoad) -> None:
    w = c.w
    assert isinstance(op.tensor.type, Tensor)
    size = op.tensor.type.dtype.bytes
    pieces = op.columns * size // PIECE
    if op.columns * size % PIECE or op.columns * size % SWIZZLE_SPAN[op.swizzle]:
        raise CompileError(
            Finding(f"thread_load: {op.columns} columns do not fill lines of {op.swizzle}", op.loc)
        )
    own = w.binary("and", "i32", c.threads.tid, THREADS - 1)
    body, end = w.name("copy"), w.name("copy_end")
    total = op.rows * pieces
    before = w.block
    w.branch(w.compare("slt", own, total), body, end)
    w.begin(body)
    phi = w.phis(["i32"])[0]
    piece = phi[1]
    line, along = w.binary("udiv", "i32", piece, pieces), w.binary("urem", "i32", piece, pieces)
    _copy_piece(c, op, line, along)
    following = w.value(f"add nuw nsw i32 {piece}, {THREADS}", "next")
    w.fill(phi, "i32", [(own, before), (following, w.block)])
    w.branch(w.compare("slt", following, total), body, end)
    w.begin(end)


def _copy_piece(c: Context, op: ThreadLoad, line: str, along: str) -> None:
    w, kind = c.w, op.tensor.type
    assert isinstance(kind, Tensor)
    dtype = kind.dtype
    count = PIECE // dtype.bytes
    coordinates = [c.scalar(v).text for v in op.coordinates]
    if op.row_dim >= 0:
        coordinates[op.row_dim] = w.add(coordinates[op.row_dim], line)
    coordinates[-1] = w.add(coordinates[-1], w.multiply(along, count))
    inside: str | None = None
    pointer = c.pointer(op.tensor).text
    for dim, text in enumerate(coordinates):
        wide = w.value(f"sext i32 {text} to i64")
        if dim < len(coordinates) - 1:
            bound = w.compare("ult", text, _size(c, kind, dim))
            inside = bound if inside is None else w.binary("and", "i1", inside, bound)
            wide = w.binary("mul", "i64", wide, c.strides[op.tensor.name, dim])
        pointer = w.value(
            f"getelementptr i{dtype.bits}, ptr addrspace(1) {pointer}, i64 {wide}", "p"
        )
    constant = op.tensor.name not in c.stored
    held: list[str] = []
    for e in range(count):
        bound = w.compare("ult", w.add(coordinates[-1], e), _size(c, kind, len(coordinates) - 1))
        pred = bound if inside is None else w.binary("and", "i1", inside, bound)
        at = Global(pointer, e * dtype.bytes)
        held.append(inline_ptx.load_global(w, at, dtype.bits, pred, constant))
    words = [
        _word(c, held[i : i + 4 // dtype.bytes], dtype.bits)
        for i in range(0, count, 4 // dtype.bytes)
    ]
    shared = c.shared(op.shared)
    base = c.item(shared, c.state(op.state).stage)
    to = At(w.add(base, _panel_address(c, op, line, along)), shared.offset + op.offset)
    inline_ptx.store_shared(w, to, 32, words)


def _size(c: Context, kind: Tensor, dim: int) -> str:
    size = kind.dims[dim]
    return str(size) if isinstance(size, int) else c.sizes[size].text


def _word(c: Context, elements: list[str], bits: int) -> str:
    """Neighbouring elements in one i32, the first lowest."""
    if bits == 32:
        return elements[0]
    made = c.w.value(f"zext i16 {elements[0]} to i32")
    for i, element in enumerate(elements[1:], 1):
        wide = c.w.value(f"zext i16 {element} to i32")
        made = c.w.binary("or", "i32", made, c.w.binary("shl", "i32", wide, i * bits))
    return made


def _panel_address(c: Context, op: ThreadLoad, line: str, along: str) -> str:
    """`panel_address` of ir/target.py, at run time."""
    w, span = c.w, SWIZZLE_SPAN[op.swizzle]
    per_line = span // PIECE
    panel, within = (
        w.binary("udiv", "i32", along, per_line),
        w.binary("urem", "i32", along, per_line),
    )
    plain = w.add(w.multiply(panel, op.rows * span), w.multiply(line, span))
    plain = w.add(plain, w.multiply(within, PIECE))
    bits = w.binary("and", "i32", w.binary("lshr", "i32", plain, 3), SWIZZLE_BITS[op.swizzle])
    return w.binary("xor", "i32", plain, bits)
