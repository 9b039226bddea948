"""`byte_of` and `join`: permutations of bytes, four at a time, by `prmt`; and bitwise operations on
bytes, four at a time.

A word of eight indices (`Registers.words`) has pair i of them in nibbles i and i + 4. Eight bytes
have two words: pairs 0 and 1 are in bytes 0 and 2, 1 and 3 of the first word, the others in the
second, for the indices in bytes 0 and 2, and in bytes 1 and 3, of the word of indices. prmt reads
three bits of an index; the fourth selects one of two results, by another prmt.
"""

from collections.abc import Sequence
from dataclasses import replace

from wsdsl.codegen import fragment_registers
from wsdsl.codegen.arithmetic.bits import AND_OR, gathered, lop3, twice
from wsdsl.codegen.arithmetic.byte_casts import halves_of
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.llvm_types import is_packed, num_elements
from wsdsl.codegen.value_registers import Nibbles, Registers, Scalar, Shape, Storage
from wsdsl.codegen.writer import Writer
from wsdsl.ir.ops import BYTE_OF_WORDS, Map
from wsdsl.ir.types import DTYPES, DType

U8, U16, U32 = DTYPES["u8"], DTYPES["u16"], DTYPES["u32"]
BITWISE, SHIFTS = ("and", "or", "xor"), {"shl": "shl", "shr": "lshr"}
EACH_BYTE = 0x01010101
THREE_BITS, FOURTH, IN_ORDER = 0x77777777, 0x44444444, 0x32321010
"""Of each nibble of a word; the place of its byte in a word of four."""
TWO_BYTES = 0x2020, 0x3131
"""Four nibbles of a word, in two pairs: those of the first and the second word of bytes."""
ALTERNATING = 0x7250
"""Bytes 0 and 2 of a first word, and 1 and 3 of a second one."""
BETWEEN = 0x5140
"""Two pairs in a word."""
EVEN, ODD = 0x6240, 0x7351
"""A pair of elements of bytes 0 and 2, 1 and 3 of words with their lower, and their upper ones."""


def byte_maps(c: Context, op: Map, dtype: DType, shape: Shape) -> Registers | None:
    """The result of a function of bytes; None for other functions."""
    if op.fn in BITWISE or op.fn in SHIFTS:
        return _in_words(c, op, dtype, shape)
    if op.fn == "where":
        return _either(c, op, dtype, shape)
    if op.fn != "join" and op.fn not in BYTE_OF_WORDS:
        return None
    args = [c.registers(a) for a in op.args]
    if op.fn in BYTE_OF_WORDS:
        index, *words = args
        return _byte_of(c.w, index, [word.texts[0] for word in words])
    return _join(c.w, args[0], args[1], dtype, shape)


def _in_words(c: Context, op: Map, dtype: DType, shape: Shape) -> Registers | None:
    """Bitwise operations on words of bytes, with constants or other words; no bit crosses bytes."""
    if dtype.name != "u8":
        return None
    first, second = (c.values[a] for a in op.args)
    if op.fn in BITWISE and isinstance(first, Scalar):
        first, second = second, first
    if (moved := _of_moved_nibbles(c.w, op.fn, first, second, shape)) is not None:
        return moved
    words, others, number = _words_of(first, shape), _words_of(second, shape), 0
    if isinstance(second, Scalar) and isinstance(second.known, int):
        number = second.known
        others = (str(number * EACH_BYTE),) * len(words)
    if not words or not others or (op.fn in SHIFTS and not isinstance(second, Scalar)):
        return None
    if op.fn in BITWISE:
        pairs = zip(words, others, strict=True)
        return of_words(c.w, U8, [c.w.binary(op.fn, "i32", a, b) for a, b in pairs], shape)
    if not 0 <= number < 8:
        return None
    kept = (0xFF << number if op.fn == "shl" else 0xFF >> number) & 0xFF
    moved = (c.w.binary(SHIFTS[op.fn], "i32", word, number) for word in words)
    results = [c.w.binary("and", "i32", word, kept * EACH_BYTE) for word in moved]
    return of_words(c.w, U8, results, shape)


def _either(c: Context, op: Map, dtype: DType, shape: Shape) -> Registers | None:
    """By rows, of words: a thread's two rows have bytes 0 and 2, and 1 and 3."""
    cond, first, second = (c.registers(a) for a in op.args)
    words = [x.words for x in (first, second) if x.shape == shape]
    if dtype.bits != 8 or len(words) < 2 or not all(words) or cond.columns > 1:
        return None
    rows = (cond.texts[fragment_registers.source_element(2 * i, shape, cond.shape)] for i in (0, 1))
    low, high = rows
    results: list[str] = []
    for a, b in zip(*words, strict=True):
        whole = c.w.select(low, "i32", a, b)
        if low != high:
            whole = _permuted(c.w, whole, c.w.select(high, "i32", a, b), ALTERNATING)
        results.append(whole)
    return of_words(c.w, dtype, results, shape)


def _words_of(value: Storage, shape: Shape) -> tuple[str, ...]:
    """None, if the bytes of that shape did not come in any."""
    if isinstance(value, Registers) and value.dtype.name == "u8" and value.shape == shape:
        return value.words
    return ()


def of_words(w: Writer, dtype: DType, words: Sequence[str], shape: Shape) -> Registers:
    """Elements of 8 bits, of such words."""
    apart = [x for word in words for x in (word, w.binary("lshr", "i32", word, 8))]
    texts = tuple(gathered(w, x) for x in apart)
    return Registers(dtype, *shape, texts, spread=tuple(apart), words=tuple(words))


def words_of_pairs(w: Writer, x: Registers) -> tuple[str, ...]:
    """Words of elements of 8 bits that have none at hand."""
    wide = [w.value(f"zext i16 {text} to i32") for text in x.texts]
    pairs = zip(wide[::2], wide[1::2], strict=True)
    return tuple(_permuted(w, *pair, BETWEEN) for pair in pairs)


def bytes_of_nibbles(w: Writer, x: Registers) -> Registers | None:
    """Integers of 4 bits as bytes; None where no words of them are at hand."""
    if x.dtype.name != "u4" or not x.words:
        return None
    return _of_nibbles(w, Nibbles(x.words), x.shape)


def _of_nibbles(w: Writer, nibbles: Nibbles, shape: Shape) -> Registers:
    results: list[str] = []
    for word in nibbles.words:
        low, high = (_moved(w, word, by) for by in (nibbles.shift, nibbles.shift - 4))
        parts = (_permuted(w, low, high, order) for order in (EVEN, ODD))
        results += (w.binary("and", "i32", x, nibbles.kept * EACH_BYTE) for x in parts)
    return replace(of_words(w, U8, results, shape), nibbles=nibbles)


def _moved(w: Writer, word: str, by: int) -> str:
    return word if by == 0 else w.binary("shl" if by > 0 else "lshr", "i32", word, abs(by))


def _of_moved_nibbles(
    w: Writer, fn: str, value: Storage, by: Storage, shape: Shape
) -> Registers | None:
    """A mask or a shift of bytes that were nibbles: made anew of these."""
    if not (isinstance(value, Registers) and value.nibbles and value.shape == shape):
        return None
    if not (isinstance(by, Scalar) and isinstance(by.known, int)):
        return None
    old, number = value.nibbles, by.known
    if fn == "and":
        return _of_nibbles(w, replace(old, kept=old.kept & number), shape)
    if fn == "shl" and 0 <= number < 8:
        kept = old.kept << number & 0xFF
        return _of_nibbles(w, replace(old, shift=old.shift + number, kept=kept), shape)
    return None


def _byte_of(w: Writer, index: Registers, table: list[str]) -> Registers:
    if not is_packed(index.dtype, index.columns) or len(index.texts) % 4:
        return _one_by_one(w, index, table)
    results: list[str] = []
    for word in _words(w, index):
        low, choice = w.binary("and", "i32", word, THREE_BITS), ""
        if len(table) > 2:
            choice = lop3(w, w.binary("lshr", "i32", word, 1), FOURTH, IN_ORDER, AND_OR)
        for order in TWO_BYTES:
            own = _permuted(w, choice, choice, order) if choice else ""
            results.append(_four(w, table, _permuted(w, low, low, order), own))
    return of_words(w, U8, results, index.shape)


def _four(w: Writer, table: list[str], low: str, choice: str) -> str:
    """Bytes by four nibbles; `choice`: of the two tables' for each, "" where there is one."""
    first = _permuted(w, table[0], table[1], low)
    if not choice:
        return first
    return _permuted(w, first, _permuted(w, table[2], table[3], low), choice)


def _words(w: Writer, index: Registers) -> tuple[str, ...]:
    """Eight indices each."""
    if index.words:
        return index.words
    mask, results = twice(15), list[str]()
    for at in range(0, len(index.texts), 4):
        word = w.binary("and", "i32", index.texts[at], mask)
        for i, text in enumerate(index.texts[at + 1 : at + 4], 1):
            moved = w.binary("shl", "i32", text, 4 * i)
            word = lop3(w, moved, mask << 4 * i, word, AND_OR)
        results.append(word)
    return tuple(results)


def _one_by_one(w: Writer, index: Registers, table: list[str]) -> Registers:
    results: list[str] = []
    for text in fragment_registers.elements(w, index):
        at = fragment_registers.resized(w, text, index.dtype, U32)
        low, choice = w.binary("and", "i32", at, 7), ""
        if len(table) > 2:
            choice = w.binary("lshr", "i32", w.binary("and", "i32", at, 8), 1)
        results.append(w.value(f"trunc i32 {_four(w, table, low, choice)} to i8"))
    return fragment_registers.from_elements(w, U8, index.shape, results)


def _join(w: Writer, high: Registers, low: Registers, dtype: DType, shape: Shape) -> Registers:
    if high.shape == low.shape == shape and is_packed(U8, shape[1]):
        if high.words and low.words:
            pairs = zip(low.words, high.words, strict=True)
            texts = (_permuted(w, *pair, order) for pair in pairs for order in (EVEN, ODD))
        else:
            apart = zip(halves_of(w, low), halves_of(w, high), strict=True)
            texts = (_permuted(w, *pair, EVEN) for pair in apart)
        return Registers(dtype, *shape, tuple(texts))
    parts = [(value, fragment_registers.elements(w, value)) for value in (high, low)]
    results: list[str] = []
    for e in range(num_elements(*shape)):
        upper, lower = (
            fragment_registers.resized(
                w, texts[fragment_registers.source_element(e, shape, value.shape)], U8, U16
            )
            for value, texts in parts
        )
        results.append(w.binary("or", "i16", w.binary("shl", "i16", upper, 8), lower))
    kind = "bfloat" if dtype.name == "bf16" else "half"
    texts = [w.value(f"bitcast i16 {text} to {kind}") for text in results]
    return fragment_registers.from_elements(w, dtype, shape, texts)


def _permuted(w: Writer, a: str, b: str, order: str | int) -> str:
    args = [("i32", a), ("i32", b), ("i32", str(order))]
    return w.asm_value("prmt.b32 $0, $1, $2, $3;", args, pure=True)
