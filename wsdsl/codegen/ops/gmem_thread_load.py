"""`thread_load`: a copy to SMEM by a warpgroup's threads, of tiles that TMA cannot copy.

A thread fills chunks of 16 bytes of SMEM, each by one store; rows of SMEM are multiples of 16
bytes, and adjacent threads read adjacent chunks. All threads together fill some lines of a panel,
then as many below or of the next panels. The latency of memory is long, so a thread issues the
loads of several chunks before it stores any.

If address, strides and size are multiples of 8 or 4 bytes, which is tested at run time, a chunk is
loaded in words of that width, else by elements. (Extracting it from two aligned chunks takes 2
loads instead of 8, but thrice the registers: 1.0 to 1.4 times as long.)
"""

import math
from contextlib import nullcontext
from dataclasses import dataclass

from wsdsl.codegen.addresses.smem_addresses import SWIZZLE_BITS
from wsdsl.codegen.addresses.thread_box import TensorBox
from wsdsl.codegen.arithmetic.bits import joined
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.inline_ptx import At, Global, ld_global, ld_global_vector, st_shared
from wsdsl.ir.hardware.gmem_limits import COPY_WORD
from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN
from wsdsl.ir.ops import ThreadLoad
from wsdsl.ir.types import THREADS, DType
from wsdsl.lazy import cached_property

CHUNK = 16
AT_ONCE = {8: 4, 4: 4, 2: 2, 1: 1}
"""Chunks whose loads are in flight, by the bytes of a load: limited by registers."""
ROOM = ((24, 4), (32, 2), (48, 1))
"""A thread with at most the first number of registers has room for 1 / (second number) of that;
with more, for twice as many.
"""


def convert_thread_load(c: Context, op: ThreadLoad) -> None:
    size = op.tensor.as_tensor.dtype.bytes
    coordinates = tuple(c.scalar(v).text for v in op.coordinates)
    copy = _Copy(c, op, TensorBox(c, op.tensor, coordinates, op.row_dim))
    widths = (bytes for bytes in (2 * COPY_WORD, COPY_WORD) if bytes > size)
    copy.box.by_widest(copy.by, *widths, size)


@dataclass(frozen=True)
class _Copy:
    c: Context
    op: ThreadLoad
    box: TensorBox

    @property
    def dtype(self) -> DType:
        return self.box.dtype

    @property
    def span(self) -> int:
        return SWIZZLE_SPAN[self.op.swizzle]

    @property
    def lines(self) -> int:
        """That all threads fill at once."""
        return THREADS * CHUNK // self.span

    @cached_property
    def panels(self) -> int:
        return self.op.columns * self.dtype.bytes // self.span

    def by(self, bytes: int) -> None:
        """Copy the box by loads of `bytes` bytes."""
        registers = self.c.place.registers or ROOM[-1][0]
        part = next((part for most, part in ROOM if registers <= most), 0)
        at_once = max(1, AT_ONCE[bytes] // part) if part else 2 * AT_ONCE[bytes]
        lines = self.lines * at_once
        whole = self.op.rows // lines * lines
        if whole:
            self.copy_lines(bytes, at_once, (0, whole), at_once)
        if whole < self.op.rows:
            below = -(-(self.op.rows - whole) // self.lines)
            self.copy_lines(bytes, below, (whole, self.op.rows), at_once)

    def copy_lines(self, bytes: int, below: int, lines: tuple[int, int], at_once: int) -> None:
        """Copy lines of all panels; the last iteration may have fewer."""
        w, (begin, end) = self.c.w, lines
        # The swizzle of all panels is equal if a panel is whole patterns.
        are_equal = self.op.rows % 8 == 0 or self.op.swizzle == "none"
        num_panels = math.gcd(self.panels, max(1, at_once // below)) if are_equal else 1
        trips = -(-(end - begin) // (self.lines * below))
        per_line = self.span // CHUNK
        own = w.binary("and", "i32", self.c.threads.tid, THREADS - 1)
        first = w.add(w.binary("udiv", "i32", own, per_line), begin)
        along = w.binary("urem", "i32", own, per_line)
        with w.counted_loop("copy", "0", self.panels // num_panels * trips, 1) as i:
            panel, trip = w.binary("udiv", "i32", i, trips), w.binary("urem", "i32", i, trips)
            line = w.add(first, w.multiply(trip, self.lines * below))
            place = line, w.multiply(panel, num_panels), along
            self.copy_chunks(bytes, (below, num_panels), place, end)

    def copy_chunks(
        self, bytes: int, count: tuple[int, int], place: tuple[str, str, str], end: int
    ) -> None:
        """Copy `count[0]` chunks in each of `count[1]` panels, from `place` on: the line, the
        panel, and the chunk of the line. Consecutive chunks of a panel are as many lines apart as
        all threads fill, a multiple of 8, so that their swizzle is equal. Lines from `end` on are
        outside.
        """
        c, w, op, span, (line, first_panel, chunk) = self.c, self.c.w, self.op, self.span, place
        column = w.add(w.multiply(first_panel, span), w.multiply(chunk, CHUNK))
        element = w.binary("udiv", "i32", column, self.dtype.bytes)
        pointer, left, rows = self.box.at(line, element)
        plain = w.add(w.multiply(first_panel, op.rows * span), w.multiply(line, span))
        plain = w.add(plain, w.multiply(chunk, CHUNK))
        bits = w.binary("and", "i32", w.binary("lshr", "i32", plain, 3), SWIZZLE_BITS[op.swizzle])
        shared = c.shared(op.shared)
        base = w.add(c.item(shared, c.state(op.state).stage), w.binary("xor", "i32", plain, bits))
        chunks: list[tuple[int, int, list[str]]] = []
        for panel in range(count[1]):
            along = panel * span // self.dtype.bytes
            bounds = [
                w.compare("slt", str(along + offset // self.dtype.bytes), left)
                for offset in range(0, CHUNK, bytes)
            ]
            for i in range(count[0]):
                inside = bounds
                if rows is not None:
                    row = w.compare("slt", str(i * self.lines), rows)
                    inside = [w.binary("and", "i1", bound, row) for bound in bounds]
                at = Global(self.box.below(pointer, i * self.lines), panel * span)
                chunks.append((i, panel, self.load(at, bytes, inside)))
        for i, panel, words in chunks:
            offset = shared.offset + op.offset + (panel * op.rows + i * self.lines) * span
            there = nullcontext()
            if i == count[0] - 1 and op.rows % self.lines and end == op.rows:
                there = w.where(w.compare("slt", w.add(line, i * self.lines), end))
            with there:
                st_shared(w, At(base, offset), 32, words)

    def load(self, start: Global, bytes: int, inside: list[str]) -> list[str]:
        """The words of a chunk; elements beyond the end are 0."""
        w, constant = self.c.w, self.op.tensor.name not in self.c.stored
        values: list[str] = []
        for i, pred in enumerate(inside):
            at = Global(start.base, start.offset + i * bytes)
            if bytes > COPY_WORD:
                values += ld_global_vector(w, at, 32, 2, pred, constant)
            else:
                values.append(ld_global(w, at, 8 * bytes, pred, constant))
        each = max(1, COPY_WORD // bytes)
        return [joined(w, values[i : i + each]) for i in range(0, len(values), each)]
