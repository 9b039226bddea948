"""`thread_store`: a copy from SMEM by the threads of each warp, of tiles that TMA cannot copy.

Adjacent lanes write adjacent words of a line, so that a warp's store reaches one or two cache
lines, where fragments are spread over eight. A word has four bytes where address, strides and size
are multiples of that, else it is an element. A thread reads several words before it stores any.
"""

import math
from functools import reduce

from wsdsl.codegen.addresses.smem_addresses import SWIZZLE_BITS, warp_place
from wsdsl.codegen.addresses.thread_box import TensorBox
from wsdsl.codegen.arithmetic.bits import REDUCTIONS
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.inline_ptx import At, Global, add_global, ld_shared, st_global
from wsdsl.ir.hardware.gmem_limits import COPY_WORD
from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN
from wsdsl.ir.ops import ThreadStore
from wsdsl.record import record

LANES = 32
PATTERN = 8
"""Lines after which a swizzle repeats."""
AT_ONCE = 6
"""Words that a thread reads before it stores any. By 8, 256 x 96 of one consumer spilled."""


def convert_thread_store(c: Context, op: ThreadStore) -> None:
    coordinates = [c.scalar(v).text for v in op.coordinates]
    first = c.w.multiply(c.threads.warp, op.box[op.row_dim])
    coordinates[op.row_dim] = c.w.add(coordinates[op.row_dim], first)
    line_dim = next((dim for dim, extent in enumerate(op.box[:-1]) if extent > 1), -1)
    start = warp_place(c, c.shared(op.shared), c.scalar(op.item), op.apart)
    store = _Store(c, op, TensorBox(c, op.tensor, tuple(coordinates), line_dim), start)
    if op.accumulate:
        store.by(store.box.dtype.bytes)
    else:
        widths = sorted({COPY_WORD, store.box.dtype.bytes}, reverse=True)
        store.box.by_widest(store.by, *widths)


@record
class _Store:
    c: Context
    op: ThreadStore
    box: TensorBox
    start: At

    @property
    def lines(self) -> int:
        return math.prod(self.op.box[:-1])

    @property
    def line_bytes(self) -> int:
        return self.op.box[-1] * self.box.dtype.bytes

    def by(self, bytes: int) -> None:
        """Copy the box by stores of `bytes` bytes; an iteration covers whole patterns."""
        w, words = self.c.w, self.line_bytes // bytes
        abreast = max(1, LANES // words)
        least = PATTERN * -(-abreast // PATTERN)
        stores = -(-least // abreast) * -(-words // LANES)
        each = least * min(max(1, AT_ONCE // stores), -(-self.lines // least))
        trips = -(-self.lines // each)
        if trips == 1:
            self.copy_lines(bytes, abreast, each, "0")
            return
        with w.counted_loop("store", "0", trips, 1) as i:
            self.copy_lines(bytes, abreast, each, w.multiply(i, each))

    def copy_lines(self, bytes: int, abreast: int, lines: int, begin: str) -> None:
        """Copy `lines` lines from `begin` on, `abreast` of them at once."""
        w, lane, words = self.c.w, self.c.threads.lane, self.line_bytes // bytes
        line, along = "0", lane
        if abreast > 1:
            line, along = (w.binary(op, "i32", lane, words) for op in ("udiv", "urem"))
        own, per_word = w.add(begin, line), bytes // self.box.dtype.bytes
        pointer, left, there = self.box.at(own, w.multiply(along, per_word))
        span = max(self.line_bytes, SWIZZLE_SPAN[self.op.swizzle])
        base = w.add(self.start.base, w.multiply(own, span))
        moves = [(i, j) for i in range(0, lines, abreast) for j in range(0, words, LANES)]
        reached = 0
        for k in range(0, len(moves), AT_ONCE):
            part, values = moves[k : k + AT_ONCE], list[str]()
            for below, first in part:
                byte = w.multiply(w.add(along, first), bytes)
                at = w.add(base, self.swizzled(w.add(line, below), span, byte))
                source = At(at, self.start.offset + below * span)
                values.append(ld_shared(w, source, 8 * bytes))
            for (below, first), text in zip(part, values, strict=True):
                pointer, reached = self.box.below(pointer, below - reached), below
                inside = [w.compare("slt", str(first * per_word), left)]
                if there is not None:
                    inside.append(w.compare("slt", str(below), there))
                if (taking := min(words - first, LANES) * abreast) < LANES:
                    inside.append(w.compare("ult", lane, taking))
                if self.lines % lines or lines % abreast:
                    inside.append(w.compare("slt", w.add(own, below), self.lines))
                    inside.append(w.compare("slt", w.add(line, below), lines))
                pred = reduce(lambda a, b: w.binary("and", "i1", a, b), inside)
                self.store(Global(pointer, first * bytes), bytes, text, pred)

    def swizzled(self, line: str, span: int, byte: str) -> str:
        """The place of a byte among those of its line."""
        w, mask = self.c.w, SWIZZLE_BITS[self.op.swizzle]
        if line.isdigit():
            bits = int(line) * span >> 3 & mask
            return w.binary("xor", "i32", byte, bits) if bits else byte
        if not mask:
            return byte
        shifted = w.binary("lshr", "i32", w.multiply(line, span), 3)
        return w.binary("xor", "i32", byte, w.binary("and", "i32", shifted, mask))

    def store(self, to: Global, bytes: int, text: str, pred: str) -> None:
        w, dtype = self.c.w, self.box.dtype
        if self.op.accumulate:
            add_global(w, to, REDUCTIONS[dtype.name], dtype.bits, [text], pred)
        else:
            st_global(w, to, 8 * bytes, [text], pred)
