"""`thread_load`: what TMA can not take, copied by a warpgroup's threads.

A thread fills 16 bytes of SMEM at a time, a multiple of 16 bytes being what a line is: neighbouring
threads read neighbouring pieces, and one piece is one store. All threads together fill some lines
of a panel, then as many below. Where address, strides and size are multiples of 8 or 4 bytes, which
is seen when the kernel runs, a piece comes in words of as many, else by elements. Memory takes
long, so a thread asks for several pieces before it stores any.
"""

from __future__ import annotations

from dataclasses import dataclass

from wsdsl.codegen import inline_ptx
from wsdsl.codegen.context import Context
from wsdsl.codegen.inline_ptx import At, Global
from wsdsl.codegen.shared_stores import SWIZZLE_BITS
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
    w = c.w
    assert isinstance(op.tensor.type, Tensor)
    size = op.tensor.type.dtype.bytes
    if op.columns * size % PIECE or op.columns * size % SWIZZLE_SPAN[op.swizzle]:
        raise CompileError(
            Finding(f"thread_load: {op.columns} columns do not fill lines of {op.swizzle}", op.loc)
        )
    copy, end = _Copy(c, op, op.tensor.type.dtype), w.name("copied")
    alike = copy.places()
    for bytes in (2 * COPY_WORD, COPY_WORD):
        if bytes > size:
            fast, slower = w.name("copy"), w.name("copy_narrower")
            masked = w.binary("and", "i64", alike, bytes - 1)
            w.branch(w.compare("eq", masked, 0, "i64"), fast, slower)
            w.begin(fast)
            copy.by(bytes)
            w.jump(end)
            w.begin(slower)
    copy.by(size)
    w.jump(end)
    w.begin(end)


@dataclass(frozen=True)
class _Copy:
    c: Context
    op: ThreadLoad
    dtype: DType

    def size(self, dim: int) -> str:
        assert isinstance(self.op.tensor.type, Tensor)
        size = self.op.tensor.type.dims[dim]
        return str(size) if isinstance(size, int) else self.c.sizes[size].text

    def places(self) -> str:
        """Of everything, in bytes; its lowest bits are 0 where all are aligned."""
        c, w, last = self.c, self.c.w, len(self.op.coordinates) - 1
        found = w.value(f"ptrtoint ptr addrspace(1) {c.pointer(self.op.tensor).text} to i64")
        counts = [c.strides[self.op.tensor.name, dim] for dim in range(last)]
        ends = c.scalar(self.op.coordinates[-1]).text, self.size(last)
        counts += [w.value(f"sext i32 {text} to i64") for text in ends]
        for text in counts:
            found = w.binary("or", "i64", found, w.binary("mul", "i64", text, self.dtype.bytes))
        return found

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
        pointer, left, rows = self.at(line, w.binary("udiv", "i32", column, self.dtype.bytes))
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
            pieces.append(self.load(self.below(pointer, i * lines), bytes, inside))
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

    def at(self, line: str, column: str) -> tuple[str, str, str | None]:
        """The piece's address, how many elements there are from there to the end of the row, and
        lines to the end of the tensor (none where lines are no dimension).
        """
        c, w, op = self.c, self.c.w, self.op
        coordinates, last = [c.scalar(v).text for v in op.coordinates], len(op.coordinates) - 1
        coordinates[-1] = w.add(coordinates[-1], column)
        if op.row_dim >= 0:
            coordinates[op.row_dim] = w.add(coordinates[op.row_dim], line)
        pointer, left, rows = c.pointer(op.tensor).text, self.left(last, coordinates[-1]), None
        for dim, text in enumerate(coordinates):
            wide = w.value(f"sext i32 {text} to i64")
            if dim < last:
                wide = w.binary("mul", "i64", wide, c.strides[op.tensor.name, dim])
            if dim == op.row_dim:
                rows = self.left(dim, text)
            elif dim < last:
                left = w.select(w.compare("ult", text, self.size(dim)), "i32", left, "0")
            pointer = self.moved(pointer, wide)
        return pointer, left, rows

    def left(self, dim: int, text: str) -> str:
        """From there to the end of the dimension; 0 beyond it."""
        w, size = self.c.w, self.size(dim)
        there = w.compare("ult", text, size)
        return w.select(there, "i32", w.binary("sub", "i32", size, text), "0")

    def below(self, pointer: str, lines: int) -> str:
        if not lines or self.op.row_dim < 0:
            return pointer
        stride = self.c.strides[self.op.tensor.name, self.op.row_dim]
        return self.moved(pointer, self.c.w.binary("mul", "i64", stride, lines))

    def moved(self, pointer: str, elements: str) -> str:
        kind = f"i{self.dtype.bits}, ptr addrspace(1)"
        return self.c.w.value(f"getelementptr {kind} {pointer}, i64 {elements}", "p")

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
