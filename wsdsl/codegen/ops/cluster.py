"""Fragments that CTAs of a cluster send each other (DSMEM)."""

from collections.abc import Iterator

from wsdsl.codegen.addresses.smem_addresses import item_at
from wsdsl.codegen.arithmetic.bits import from_bits, to_bits
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.fragment_registers import elements, from_elements
from wsdsl.codegen.inline_ptx import At, ld_shared_words, store_remote
from wsdsl.codegen.llvm_types import dtype_and_shape
from wsdsl.ir.ops import BLOCK_BYTES, BLOCK_COLUMNS, HELD, HELD_BYTES, ReceiveFragment, SendFragment


def convert_send_fragment(c: Context, op: SendFragment) -> None:
    w, value = c.w, c.registers(op.value)
    texts = [to_bits(w, x, value.dtype) for x in elements(w, value)]
    barrier, cta = item_at(c, op.barriers, op.state), c.scalar(op.cta).text
    comment = c.shared(op.barriers).comment
    for i, at in enumerate(_shared_blocks(c, op, value.columns)):
        store_remote(w, at, barrier, cta, texts[HELD * i : HELD * i + HELD], comment)


def convert_receive_fragment(c: Context, op: ReceiveFragment) -> None:
    w = c.w
    dtype, shape = dtype_and_shape(op.result.type)
    results: list[str] = []
    for at in _shared_blocks(c, op, shape[1]):
        results += [from_bits(w, x, dtype) for x in ld_shared_words(w, at)]
    c.define(op.result, from_elements(w, dtype, shape, results))


def _shared_blocks(c: Context, op: SendFragment | ReceiveFragment, columns: int) -> Iterator[At]:
    """Where the thread's elements of each block lie."""
    w, shared = c.w, c.shared(op.shared)
    base = c.item(shared, c.state(op.state).stage)
    if op.shift is not None:
        base = w.add(base, c.scalar(op.shift).text)
    thread = w.binary("and", "i32", c.threads.tid, 127)
    base = w.add(base, w.multiply(thread, HELD_BYTES))
    for block in range(columns // BLOCK_COLUMNS):
        yield At(base, shared.offset + op.offset + BLOCK_BYTES * block)
