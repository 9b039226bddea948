"""Loads and stores of up to 16 bytes, by threads whose lanes hold that many neighbours.

A vector at the end of a row may be there in part. That is seldom: it costs a branch, behind which
elements go one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from wsdsl.codegen import inline_ptx
from wsdsl.codegen.addresses.gmem_addresses import Addresses
from wsdsl.codegen.arithmetic.bits import bools_of, from_bits, joined
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.inline_ptx import Global
from wsdsl.codegen.llvm_types import is_packed, num_elements
from wsdsl.codegen.value_registers import Registers, Shape
from wsdsl.codegen.writer import Writer
from wsdsl.ir.types import DType, Tensor

WORD = 32


def load_vectors(
    c: Context, addresses: Addresses, dtype: DType, shape: Shape, vector: int, constant: bool
) -> Registers:
    w, kind = c.w, addresses.kind
    words: list[str] = []
    for e in range(0, num_elements(*shape), vector):
        whole, count = addresses.condition(e + vector - 1), vector * dtype.bits // WORD
        words += inline_ptx.load_global_vector(w, addresses.at(e), WORD, count, whole, constant)
    some = _in_part(c, addresses, shape, vector, kind)
    if some is None:
        return from_words(w, dtype, shape, words)
    before = w.block
    with seldom(w, some) as after:
        each: list[str] = []
        for e in range(num_elements(*shape)):
            at, pred = addresses.at(e), addresses.condition(e)
            each.append(inline_ptx.load_global(w, at, dtype.bits, pred, constant))
        count = WORD // dtype.bits
        single = [joined(w, each[i : i + count]) for i in range(0, len(each), count)]
        behind = w.block
    # Words as they were loaded: whoever takes them apart in front of this would wait for them.
    phis = w.phis(["i32"] * len(words))
    for phi, one, other in zip(phis, single, words, strict=True):
        w.fill(phi, "i32", [(one, behind), (other, before)])
    assert after == w.block
    return from_words(w, dtype, shape, [name for _, name in phis])


def store_vectors(
    c: Context,
    addresses: Addresses,
    shape: Shape,
    vector: int,
    pair: Callable[[int], list[str]],
    both: Callable[[str | None], str | None],
    write: Callable[[Global, list[str], str | None], None],
    singles: Callable[[], None],
) -> None:
    """`pair`: the bits of an element and its neighbour, two of 32, or what holds both; `both` says
    where else it has to be. `write` stores or adds words, and `singles` all, element by element.
    """
    w, dtype = c.w, addresses.kind.dtype
    for e in range(0, num_elements(*shape), vector):
        texts = [text for i in range(0, vector, 2) for text in pair(e + i)]
        if dtype.bits == 8:
            texts = [pairs_in_word(w, *two) for two in zip(texts[::2], texts[1::2], strict=True)]
        whole = both(addresses.condition(e + vector - 1))
        write(addresses.at(e), texts, whole)
    some = _in_part(c, addresses, shape, vector, addresses.kind)
    if some is not None:
        with seldom(w, some):
            singles()


@contextmanager
def seldom(w: Writer, cond: str) -> Generator[str]:
    """What is done where `cond` holds, which it mostly does not; gives the label behind it."""
    inside, after = w.name("part"), w.name("after")
    w.branch(w.binary("xor", "i1", cond, "true"), after, inside, likely=True)
    w.begin(inside)
    yield after
    w.jump(after)
    w.begin(after)


def _in_part(
    c: Context, addresses: Addresses, shape: Shape, vector: int, kind: Tensor
) -> str | None:
    """i1: some vector has its first element, and not its last; None if that can not be."""
    size, w = kind.dims[-1], c.w
    size = c.sizes[size].known if isinstance(size, str) else size
    if isinstance(size, int) and size % vector == 0:
        return None
    found: dict[str, None] = {}
    for e in range(0, num_elements(*shape), vector):
        first, last = addresses.condition(e), addresses.condition(e + vector - 1)
        if first is not None and last is not None:
            found[w.binary("and", "i1", first, w.binary("xor", "i1", last, "true"))] = None
    made: str | None = None
    for one in found:
        made = one if made is None else w.binary("or", "i1", made, one)
    return made


def from_words(w: Writer, dtype: DType, shape: Shape, words: list[str]) -> Registers:
    if dtype.bits == WORD:
        return Registers(dtype, *shape, tuple(from_bits(w, word, dtype) for word in words))
    if dtype.bits == 16 and is_packed(dtype, shape.columns):
        return Registers(dtype, *shape, tuple(words))
    halves = [
        w.value(f"trunc i32 {half} to i16")
        for word in words
        for half in (word, w.binary("lshr", "i32", word, 16))
    ]
    if dtype.name == "bool":
        return Registers(dtype, *shape, tuple(bools_of(w, halves, dtype)))
    return Registers(dtype, *shape, tuple(halves))


def pairs_in_word(w: Writer, low: str, high: str) -> str:
    """Two pairs of bytes, each in an i16, in one word."""
    low, high = (w.value(f"zext i16 {x} to i32") for x in (low, high))
    return w.binary("or", "i32", low, w.binary("shl", "i32", high, 16))
