"""Loads and stores of up to 16 bytes, by threads whose lanes have that many adjacent elements.

A vector at the end of a row may be partly inside the tensor. That is rare: it costs a branch to
accesses element by element.
"""

from collections.abc import Generator
from contextlib import contextmanager

from wsdsl.codegen import inline_ptx
from wsdsl.codegen.addresses.gmem_addresses import Addresses
from wsdsl.codegen.arithmetic.bits import bools_of, from_bits, halves_of_word, joined
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.llvm_types import is_packed, num_elements
from wsdsl.codegen.value_registers import Registers, Shape
from wsdsl.codegen.writer import Writer
from wsdsl.ir.types import DType

WORD = 32


def load_vectors(
    c: Context, addresses: Addresses, dtype: DType, shape: Shape, vector: int, constant: bool
) -> Registers:
    w, words = c.w, list[str]()
    for e in range(0, num_elements(*shape), vector):
        whole, count = addresses.condition(e + vector - 1), vector * dtype.bits // WORD
        words += inline_ptx.ld_global_vector(w, addresses.at(e), WORD, count, whole, constant)
    some = partial_vectors(c, addresses, shape, vector)
    if some is None:
        return from_words(w, dtype, shape, words)
    before = w.block
    with rare_block(w, some) as after:
        each: list[str] = []
        for e in range(num_elements(*shape)):
            at, pred = addresses.at(e), addresses.condition(e)
            each.append(inline_ptx.ld_global(w, at, dtype.bits, pred, constant))
        count = WORD // dtype.bits
        single = [joined(w, each[i : i + count]) for i in range(0, len(each), count)]
        behind = w.block
    # Words as they were loaded: unpacking before the branch joins would wait for the loads.
    phis = w.phis(["i32"] * len(words))
    for phi, one, other in zip(phis, single, words, strict=True):
        w.fill(phi, "i32", [(one, behind), (other, before)])
    assert after == w.block
    return from_words(w, dtype, shape, [name for _, name in phis])


@contextmanager
def rare_block(w: Writer, cond: str) -> Generator[str]:
    """Emit a block for the unlikely case that `cond` holds; yields the label after it."""
    inside, after = w.name("part"), w.name("after")
    w.branch(w.binary("xor", "i1", cond, "true"), after, inside, likely=True)
    w.begin(inside)
    yield after
    w.jump(after)
    w.begin(after)


def partial_vectors(c: Context, addresses: Addresses, shape: Shape, vector: int) -> str | None:
    """i1: some vector begins inside the tensor and ends outside; None: none can."""
    w, size = c.w, c.size(addresses.kind.dims[-1]).known
    if isinstance(size, int) and size % vector == 0:
        return None
    results: dict[str, None] = {}
    for e in range(0, num_elements(*shape), vector):
        first, last = addresses.condition(e), addresses.condition(e + vector - 1)
        if first is not None and last is not None:
            results[w.binary("and", "i1", first, w.binary("xor", "i1", last, "true"))] = None
    return w.combine("or", results)


def from_words(w: Writer, dtype: DType, shape: Shape, words: list[str]) -> Registers:
    if dtype.bits == WORD:
        return Registers(dtype, *shape, tuple(from_bits(w, word, dtype) for word in words))
    if dtype.bits == 16 and is_packed(dtype, shape.columns):
        return Registers(dtype, *shape, tuple(words))
    halves = [half for word in words for half in halves_of_word(w, word)]
    if dtype.name == "bool":
        return Registers(dtype, *shape, tuple(bools_of(w, halves, dtype)))
    return Registers(dtype, *shape, tuple(halves))
