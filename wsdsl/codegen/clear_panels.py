"""`clear_panels`: zeros beside what a tile in SMEM has, 16 bytes at a time."""

from __future__ import annotations

from wsdsl.codegen import inline_ptx
from wsdsl.codegen.context import Context
from wsdsl.codegen.control import counted_loop
from wsdsl.codegen.inline_ptx import At
from wsdsl.codegen.shared_stores import SWIZZLE_BITS
from wsdsl.ir.memory_ops import ClearPanels
from wsdsl.ir.swizzle import SWIZZLE_SPAN
from wsdsl.ir.types import DTYPES

PIECE = 16
THREADS = 128


def convert_clear_panels(c: Context, op: ClearPanels) -> None:
    """Neighbouring threads have neighbouring pieces, as they lie in SMEM."""
    w, shared = c.w, c.shared(op.shared)
    base = w.add(c.item(shared, c.state(op.state).stage), shared.offset + op.offset)
    bytes = op.rows * op.columns * DTYPES[op.dtype].bytes
    own = w.multiply(w.binary("and", "i32", c.threads.tid, THREADS - 1), PIECE)
    with counted_loop(w, "clear", "0", bytes, THREADS * PIECE) as start:
        place = w.add(own, start)
        with w.where(w.compare("slt", place, bytes)):
            _clear(c, op, At(w.add(base, place)), place)


def _clear(c: Context, op: ClearPanels, to: At, place: str) -> None:
    """What of the piece that lies `place` bytes into the tile is outside."""
    w, span, width = c.w, SWIZZLE_SPAN[op.swizzle], DTYPES[op.dtype].bytes
    panel = op.rows * span
    if op.lines:
        line = w.binary("udiv", "i32", w.binary("urem", "i32", place, panel), span)
        with w.where(_is_outside(c, op, line, 1)):
            inline_ptx.store_shared(w, to, 32, ["0"] * 4)
        return
    bits = w.binary("and", "i32", w.binary("lshr", "i32", place, 3), SWIZZLE_BITS[op.swizzle])
    along = w.binary("urem", "i32", w.binary("xor", "i32", place, bits), span)
    before = w.multiply(w.binary("udiv", "i32", place, panel), span // width)
    element = w.add(before, w.binary("udiv", "i32", along, width))
    with w.where(_is_outside(c, op, element, PIECE // width)):
        for i in range(PIECE // width):
            at = At(to.base, to.offset + i * width)
            with w.where(_is_outside(c, op, w.add(element, i), 1)):
                inline_ptx.store_shared(w, at, 8 * width, ["0"])


def _is_outside(c: Context, op: ClearPanels, at: str, num: int) -> str:
    """Whether any of `num` elements, or lines, from `at` on is outside."""
    w, begin, end = c.w, c.scalar(op.begin).text, c.scalar(op.end).text
    before, behind = w.compare("slt", at, begin), w.compare("sgt", w.add(at, num), end)
    return w.binary("or", "i1", before, behind)
