"""`thread_load`: what TMA can not take, copied by a warpgroup's threads.

A thread fills 16 bytes of SMEM at a time, a multiple of 16 bytes being what a line is: neighbouring
threads read neighbouring pieces, and one piece is one store. All threads together fill some lines
of a panel, then as many below. A piece comes in words or by elements (`tensor_box`). Memory takes
long, so a thread asks for several pieces before it stores any.
"""

from __future__ import annotations

from dataclasses import dataclass

from wsdsl.codegen import inline_ptx
from wsdsl.codegen.context import Context
from wsdsl.codegen.inline_ptx import At, Global
from wsdsl.codegen.shared_stores import SWIZZLE_BITS
from wsdsl.codegen.tensor_box import TensorBox
from wsdsl.diagnostics import CompileError, Finding
from wsdsl.ir.memory_ops import ThreadLoad
from wsdsl.ir.target import COPY_WORD, SWIZZLE_SPAN
from wsdsl.ir.types import DType, Tensor

PIECE = 16
THREADS = 128
AT_ONCE = {8: 4, 4: 4, 2: 2, 1: 1}
"""Pieces whose loads are under way, by the bytes of a load: as many as there are registers for."""
ROOM = ((24, 4), (32, 2), (48, 1))
"""A thread with so many registers at the most has room for this part of that; with more, for twice
as many."""


def convert_thread_load(c: Context, op: ThreadLoad) -> None:
    assert isinstance(op.tensor.type, Tensor)
    size = op.tensor.type.dtype.bytes
    if op.columns * size % PIECE or op.columns * size % SWIZZLE_SPAN[op.swizzle]:
        raise CompileError(
            Finding(f"thread_load: {op.columns} columns do not fill lines of {op.swizzle}", op.loc)
        )
    coordinates = tuple(c.scalar(v).text for v in op.coordinates)
    copy = _Copy(c, op, TensorBox(c, op.tensor, coordinates, op.row_dim))
    copy.box.by_widest(copy.by)


@dataclass(frozen=True)
class _Copy:
    c: Context
    op: ThreadLoad
    box: TensorBox

    @property
    def dtype(self) -> DType:
        return self.box.dtype

    def by(self, bytes: int) -> None:
        """All of it, by loads of so many bytes."""
        registers = self.c.place.registers or ROOM[-1][0]
        part = next((part for most, part in ROOM if registers <= most), 0)
        at_once = max(1, AT_ONCE[bytes] // part) if part else 2 * AT_ONCE[bytes]
        lines = self.lines * at_once
        whole = self.op.rows // lines * lines
        if whole:
            self.turns(bytes, at_once, 0, whole)
        if whole < self.op.rows:
            self.turns(bytes, -(-(self.op.rows - whole) // self.lines), whole, self.op.rows)

    @property
    def lines(self) -> int:
        """That all threads fill at once."""
        return THREADS * PIECE // SWIZZLE_SPAN[self.op.swizzle]

    def turns(self, bytes: int, at_once: int, begin: int, end: int) -> None:
        """These lines of all panels; where they are no multiple, of less than a turn."""
        w, op, span = self.c.w, self.op, SWIZZLE_SPAN[self.op.swizzle]
        panels, per_line = op.columns * self.dtype.bytes // span, span // PIECE
        turns = -(-(end - begin) // (self.lines * at_once))
        own = w.binary("and", "i32", self.c.threads.tid, THREADS - 1)
        first = w.add(w.binary("udiv", "i32", own, per_line), begin)
        along = w.binary("urem", "i32", own, per_line)
        body, over = w.name("copy_turn"), w.name("copy_end")
        before = w.block
        w.jump(body)
        w.begin(body)
        phi = w.phis(["i32"])[0]
        # ptxas would have several turns' loads under way, with twice the registers.
        w.asm(".pragma \\22nounroll\\22;", "void", "", [])
        panel, turn = w.binary("udiv", "i32", phi[1], turns), w.binary("urem", "i32", phi[1], turns)
        line = w.add(first, w.multiply(turn, self.lines * at_once))
        self.turn(bytes, at_once, (line, panel, along), end)
        following = w.value(f"add nuw nsw i32 {phi[1]}, 1", "next")
        w.fill(phi, "i32", [("0", before), (following, w.block)])
        w.branch(w.compare("slt", following, panels * turns), body, over)
        w.begin(over)

    def turn(self, bytes: int, at_once: int, place: tuple[str, str, str], end: int) -> None:
        """`place`: the line, the panel, and which piece of the panel's line. Each further piece is
        as many lines below as all threads fill, a multiple of 8: swizzled alike. Lines from `end`
        on are not there.
        """
        c, w, op = self.c, self.c.w, self.op
        span, lines, (line, panel, along) = SWIZZLE_SPAN[op.swizzle], self.lines, place
        column = w.add(w.multiply(panel, span), w.multiply(along, PIECE))
        pointer, left, rows = self.box.at(line, w.binary("udiv", "i32", column, self.dtype.bytes))
        bounds = [
            w.compare("slt", str(offset // self.dtype.bytes), left)
            for offset in range(0, PIECE, bytes)
        ]
        plain = w.add(w.multiply(panel, op.rows * span), w.multiply(line, span))
        plain = w.add(plain, w.multiply(along, PIECE))
        bits = w.binary("and", "i32", w.binary("lshr", "i32", plain, 3), SWIZZLE_BITS[op.swizzle])
        shared = c.shared(op.shared)
        base = w.add(c.item(shared, c.state(op.state).stage), w.binary("xor", "i32", plain, bits))
        pieces: list[list[str]] = []
        for i in range(at_once):
            inside = bounds
            if rows is not None:
                row = w.compare("slt", str(i * lines), rows)
                inside = [w.binary("and", "i1", bound, row) for bound in bounds]
            pieces.append(self.load(self.box.below(pointer, i * lines), bytes, inside))
        for i, words in enumerate(pieces):
            to = At(base, shared.offset + op.offset + i * lines * span)
            if i == at_once - 1 and op.rows % lines and end == op.rows:
                there, stored = w.name("copy_there"), w.name("copy_stored")
                w.branch(w.compare("slt", w.add(line, i * lines), end), there, stored)
                w.begin(there)
                inline_ptx.store_shared(w, to, 32, words)
                w.jump(stored)
                w.begin(stored)
            else:
                inline_ptx.store_shared(w, to, 32, words)

    def load(self, pointer: str, bytes: int, inside: list[str]) -> list[str]:
        """The words of a piece; elements beyond the end are 0."""
        w, constant = self.c.w, self.op.tensor.name not in self.c.stored
        held: list[str] = []
        for i, pred in enumerate(inside):
            at = Global(pointer, i * bytes)
            if bytes > COPY_WORD:
                held += inline_ptx.load_global_pair(w, at, 32, pred, None, constant)
            else:
                held.append(inline_ptx.load_global(w, at, 8 * bytes, pred, constant))
        each = max(1, COPY_WORD // bytes)
        return [self.word(held[i : i + each], 8 * bytes) for i in range(0, len(held), each)]

    def word(self, elements: list[str], bits: int) -> str:
        """Neighbouring elements in one i32, the first lowest."""
        w = self.c.w
        if len(elements) == 1:
            return elements[0]
        made = w.value(f"zext i16 {elements[0]} to i32")
        for i, element in enumerate(elements[1:], 1):
            wide = w.value(f"zext i16 {element} to i32")
            made = w.binary("or", "i32", made, w.binary("shl", "i32", wide, i * bits))
        return made
