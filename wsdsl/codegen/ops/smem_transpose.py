"""`store_transposed` and `load_transposed`: the columns of a thread's fragment as words of SMEM,
and vectors of words.

Where a thread has adjacent rows, their elements in a column make a word: two of 16 bits by one
`prmt` per word, four of 8 bits by two. A thread has one address, of its first line and its first
bytes in it. Its elements differ from it by constants: lines are offsets of the instruction, bytes
are exclusive-or'd, as `line_place` does.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce

from wsdsl.codegen import fragment_registers
from wsdsl.codegen.addresses.smem_addresses import item_place
from wsdsl.codegen.addresses.vector_access import from_words
from wsdsl.codegen.arithmetic.bits import from_bits, joined, to_bits
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.inline_ptx import At, ld_shared, ld_shared_words, st_shared
from wsdsl.codegen.llvm_types import dtype_and_shape, is_packed, num_elements
from wsdsl.codegen.nvvm import pick_bytes
from wsdsl.codegen.ops.smem import packed_pairs
from wsdsl.codegen.value_registers import Registers
from wsdsl.codegen.writer import Writer
from wsdsl.ir.hardware.swizzle import GROUPS, VECTOR, WORD, exchanged, unit_of
from wsdsl.ir.ops import LoadTransposed, StoreTransposed

PAIRS = "21520", "30258"
"""0x5410 and 0x7632: the lower and the upper halves of two words."""
BYTES = "20800", "29538"
"""0x5140 and 0x7362: the bytes of two words, interleaved; their lower and their upper halves."""
EXCHANGED = GROUPS * VECTOR
"""Bytes of a line that may be exchanged."""


@dataclass
class _Lines:
    """Addresses in an item of lines. `line` and `byte` are the thread's first ones; `line` is a
    multiple of `unit`, and the lines of the other elements differ from it by constants.
    """

    w: Writer
    place: At
    line: str
    byte: str
    unit: int
    line_bytes: int
    step: int
    known: dict[object, str] = field(default_factory=dict[object, str])

    def at(self, line: int, byte: int) -> At:
        """The address `line` lines and `byte` bytes on; no bit of `byte` is set in the thread's
        first byte.
        """
        low = byte % EXCHANGED
        base = self._once((self._pattern(line), low), lambda: self._address(line, low))
        return At(base, self.place.offset + line * self.line_bytes + byte - low)

    def _address(self, line: int, low: int) -> str:
        w = self.w
        byte = self._once(self._pattern(line), lambda: self._exchanged(line))
        byte = w.binary("xor", "i32", byte, low) if low else byte
        first = self._once("first", lambda: w.multiply(self.line, self.line_bytes))
        return w.add(self.place.base, w.add(first, byte))

    def _pattern(self, line: int) -> int:
        """The phase of a line in the exchange pattern: equal phases have equal exchanges."""
        among, step = exchanged(self.line_bytes, self.step), max(1, self.step)
        return line % (among * step) // math.gcd(self.unit, step)

    def _exchanged(self, line: int) -> str:
        w, among = self.w, exchanged(self.line_bytes, self.step)
        bits = w.binary("lshr", "i32", w.add(self.line, line), max(1, self.step).bit_length() - 1)
        bits = w.binary("and", "i32", bits, among - 1)
        return w.binary("xor", "i32", self.byte, w.multiply(bits, unit_of(self.step)))

    def _once(self, key: object, make: Callable[[], str]) -> str:
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]


def convert_store_transposed(c: Context, op: StoreTransposed) -> None:
    w, parts = c.w, [c.registers(v) for v in op.parts]
    lanes, size = parts[0].lanes, parts[0].dtype.bytes
    lines = _Lines(
        w,
        item_place(c, c.shared(op.shared), c.scalar(op.item)),
        fragment_registers.first_column(c, lanes),
        w.multiply(fragment_registers.first_row(c, lanes, parts[0].rows), size),
        1 if lanes.striped else lanes.vector,
        sum(part.rows for part in parts) * size,
        op.step,
    )
    before = 0
    for part in parts:
        height = math.gcd(WORD // size, lanes.tall)
        for element, text in _down_columns(w, part, height):
            byte = (before + fragment_registers.row_offset(element, part.shape)) * size
            at = lines.at(op.line + fragment_registers.column_offset(element, part.shape), byte)
            st_shared(w, at, 8 * size * height, [text])
        before += part.rows


def _down_columns(w: Writer, part: Registers, height: int) -> list[tuple[int, str]]:
    """For each column, `height` adjacent rows in one register, with the first one's element."""
    vector, value, size = part.lanes.vector, part.lanes.held(part.rows), part.dtype.bytes
    count = num_elements(*part.shape)
    firsts = [e for e in range(0, count, vector) if e // vector % value % height == 0]
    if size == 2 and height == 2 and vector > 1:
        pairs, results = packed_pairs(w, part), list[tuple[int, str]]()
        for e in (e for first in firsts for e in range(first, first + vector, 2)):
            two = pairs[e // 2], pairs[(e + vector) // 2]
            results += [(e + i, pick_bytes(w, *two, PAIRS[i])) for i in (0, 1)]
        return results
    if height == WORD and vector >= WORD and is_packed(part.dtype, part.columns):
        words = [joined(w, part.texts[i : i + 2]) for i in range(0, len(part.texts), 2)]
        results = []
        for e in (e for first in firsts for e in range(first, first + vector, WORD)):
            rows = [words[(e + i * vector) // WORD] for i in range(WORD)]
            for i, half in enumerate(BYTES):
                low, high = (pick_bytes(w, rows[n], rows[n + 1], half) for n in (0, 2))
                results += [(e + 2 * i + n, pick_bytes(w, low, high, PAIRS[n])) for n in (0, 1)]
        return results
    texts = [to_bits(w, x, part.dtype) for x in fragment_registers.elements(w, part)]
    each = [e for first in firsts for e in range(first, first + vector)]
    return [(e, _joined(w, [texts[e + i * vector] for i in range(height)], size)) for e in each]


def _joined(w: Writer, texts: list[str], size: int) -> str:
    """Elements of `size` bytes, which are i16 if they have fewer than four."""
    if len(texts) == 1:
        return texts[0]
    wide = [w.value(f"zext i16 {x} to i32") for x in texts]
    moved = [w.binary("shl", "i32", x, 8 * size * i) if i else x for i, x in enumerate(wide)]
    word = reduce(lambda a, b: w.binary("or", "i32", a, b), moved)
    return word if size * len(texts) == WORD else w.value(f"trunc i32 {word} to i16")


def convert_load_transposed(c: Context, op: LoadTransposed) -> None:
    w, (dtype, shape) = c.w, dtype_and_shape(op.result.type)
    size, lanes = dtype.bytes, shape.lanes
    lines = _Lines(
        w,
        item_place(c, c.shared(op.shared), c.scalar(op.item)),
        fragment_registers.first_row(c, lanes, shape.rows),
        w.multiply(fragment_registers.first_column(c, lanes), size),
        1,
        op.length * size,
        op.step,
    )

    def at(element: int) -> At:
        byte = (op.first + fragment_registers.column_offset(element, shape)) * size
        return lines.at(op.line + fragment_registers.row_offset(element, shape), byte)

    count, vector = num_elements(*shape), lanes.vector * size
    if lanes.striped or not op.step or vector % WORD:
        texts = [ld_shared(w, at(e), 8 * size) for e in range(count)]
        c.define(
            op.result,
            fragment_registers.from_elements(
                w, dtype, shape, [from_bits(w, x, dtype) for x in texts]
            ),
        )
        return
    words = list[str]()
    for e in range(0, count, lanes.vector):
        words += ld_shared_words(w, at(e), vector // WORD)
    c.define(op.result, from_words(w, dtype, shape, words))
