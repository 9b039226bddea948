"""`byte_of` and `join`: bytes that are moved, four at a time, by `prmt`; and operations on bits of
bytes, four at a time.

A word of eight indices (`Registers.words`) has pair i of them in nibbles i and i + 4, one of eight
bytes has pairs 0 and 1 in bytes 0 and 2, 1 and 3 of a first word, the others in a second one. prmt
takes three bits of an index; by the fourth one chooses between two results, likewise by prmt.
"""

from __future__ import annotations

from wsdsl.codegen.byte_casts import halves_of
from wsdsl.codegen.context import Context
from wsdsl.codegen.convert_type import is_packed, num_elements
from wsdsl.codegen.fragments import (
    Shape,
    elements,
    from_elements,
    resized,
    shape_of,
    source_element,
)
from wsdsl.codegen.halves import AND_OR, gathered, lop3, twice
from wsdsl.codegen.held import Held, Registers, Scalar
from wsdsl.codegen.writer import Writer
from wsdsl.ir.tile_ops import Map
from wsdsl.ir.types import DTYPES, DType

U8, U16, U32 = DTYPES["u8"], DTYPES["u16"], DTYPES["u32"]
BITWISE, SHIFTS = ("and", "or", "xor"), {"shl": "shl", "shr": "lshr"}
EACH_BYTE = 0x01010101
THREE_BITS, FOURTH, IN_ORDER = 0x77777777, 0x44444444, 0x32103210
"""Of each nibble of a word; the place of each of four bytes."""
FIRST_PAIRS, LAST_PAIRS = 0x5410, 0x7632
"""Of bytes with the first of each pair, and those with the second."""
EVEN, ODD = 0x6240, 0x7351
"""A pair of elements of bytes 0 and 2, 1 and 3 of words with their lower, and their upper ones."""


def byte_maps(c: Context, op: Map, dtype: DType, shape: Shape) -> Registers | None:
    """What these functions give; None for others."""
    if op.fn in BITWISE or op.fn in SHIFTS:
        return _in_words(c, op, dtype, shape)
    if op.fn not in ("byte_of", "join"):
        return None
    args = [c.registers(a) for a in op.args]
    if op.fn == "byte_of":
        index, *words = args
        return _byte_of(c.w, index, [word.texts[0] for word in words])
    return _join(c.w, args[0], args[1], dtype, shape)


def _in_words(c: Context, op: Map, dtype: DType, shape: Shape) -> Registers | None:
    """Of bytes that words are at hand of, by constants or by others; none go over to neighbours."""
    if dtype.name != "u8":
        return None
    first, second = (c.held[a] for a in op.args)
    if op.fn in BITWISE and isinstance(first, Scalar):
        first, second = second, first
    words, others, number = _words_of(first, shape), _words_of(second, shape), 0
    if isinstance(second, Scalar) and isinstance(second.known, int):
        number = second.known
        others = (str(number * EACH_BYTE),) * len(words)
    if not words or not others or (op.fn in SHIFTS and not isinstance(second, Scalar)):
        return None
    if op.fn in BITWISE:
        pairs = zip(words, others, strict=True)
        return _of_words(c.w, [c.w.binary(op.fn, "i32", a, b) for a, b in pairs], shape)
    if not 0 <= number < 8:
        return None
    kept = (0xFF << number if op.fn == "shl" else 0xFF >> number) & 0xFF
    moved = (c.w.binary(SHIFTS[op.fn], "i32", word, number) for word in words)
    made = [c.w.binary("and", "i32", word, kept * EACH_BYTE) for word in moved]
    return _of_words(c.w, made, shape)


def _words_of(held: Held, shape: Shape) -> tuple[str, ...]:
    """None, if the bytes of that shape did not come in any."""
    if isinstance(held, Registers) and held.dtype.name == "u8" and shape_of(held) == shape:
        return held.words
    return ()


def _of_words(w: Writer, words: list[str], shape: Shape) -> Registers:
    apart = [x for word in words for x in (word, w.binary("lshr", "i32", word, 8))]
    texts = tuple(gathered(w, x) for x in apart)
    return Registers(U8, *shape, texts, spread=tuple(apart), words=tuple(words))


def _byte_of(w: Writer, index: Registers, table: list[str]) -> Registers:
    if not is_packed(index.dtype, index.columns) or len(index.texts) % 4:
        return _one_by_one(w, index, table)
    made: list[str] = []
    for word in _words(w, index):
        low = w.binary("and", "i32", word, THREE_BITS)
        choice = lop3(w, w.binary("lshr", "i32", word, 1), FOURTH, IN_ORDER, AND_OR)
        one, other = (_four(w, table, *_upper(w, low, choice, half)) for half in (False, True))
        made += (_permuted(w, one, other, order) for order in (FIRST_PAIRS, LAST_PAIRS))
    return _of_words(w, made, shape_of(index))


def _upper(w: Writer, low: str, choice: str, upper: bool) -> tuple[str, str]:
    """Selectors of the four nibbles in the lower or the upper half of a word."""
    if not upper:
        return low, choice
    return w.binary("lshr", "i32", low, 16), w.binary("lshr", "i32", choice, 16)


def _four(w: Writer, table: list[str], low: str, choice: str) -> str:
    lower, upper = (_permuted(w, table[at], table[at + 1], low) for at in (0, 2))
    return _permuted(w, lower, upper, choice)


def _words(w: Writer, index: Registers) -> tuple[str, ...]:
    """Eight indices each."""
    if index.words:
        return index.words
    mask, found = twice(15), list[str]()
    for at in range(0, len(index.texts), 4):
        word = w.binary("and", "i32", index.texts[at], mask)
        for i, text in enumerate(index.texts[at + 1 : at + 4], 1):
            moved = w.binary("shl", "i32", text, 4 * i)
            word = lop3(w, moved, mask << 4 * i, word, AND_OR)
        found.append(word)
    return tuple(found)


def _one_by_one(w: Writer, index: Registers, table: list[str]) -> Registers:
    made: list[str] = []
    for text in elements(w, index):
        at = resized(w, text, index.dtype, U32)
        low = w.binary("and", "i32", at, 7)
        choice = w.binary("lshr", "i32", w.binary("and", "i32", at, 8), 1)
        made.append(w.value(f"trunc i32 {_four(w, table, low, choice)} to i8"))
    return from_elements(w, U8, shape_of(index), made)


def _join(w: Writer, high: Registers, low: Registers, dtype: DType, shape: Shape) -> Registers:
    if shape_of(high) == shape_of(low) == shape and is_packed(U8, shape[1]):
        if high.words and low.words:
            pairs = zip(low.words, high.words, strict=True)
            texts = (_permuted(w, *pair, order) for pair in pairs for order in (EVEN, ODD))
        else:
            apart = zip(halves_of(w, low), halves_of(w, high), strict=True)
            texts = (_permuted(w, *pair, EVEN) for pair in apart)
        return Registers(dtype, *shape, tuple(texts))
    parts = [(held, elements(w, held)) for held in (high, low)]
    made: list[str] = []
    for e in range(num_elements(*shape)):
        upper, lower = (
            resized(w, texts[source_element(e, shape, shape_of(held))], U8, U16)
            for held, texts in parts
        )
        made.append(w.binary("or", "i16", w.binary("shl", "i16", upper, 8), lower))
    kind = "bfloat" if dtype.name == "bf16" else "half"
    texts = [w.value(f"bitcast i16 {text} to {kind}") for text in made]
    return from_elements(w, dtype, shape, texts)


def _permuted(w: Writer, a: str, b: str, order: str | int) -> str:
    args = [("i32", a), ("i32", b), ("i32", str(order))]
    return w.asm("prmt.b32 $0, $1, $2, $3;", "i32", "=r,r,r,r", args, pure=True)
