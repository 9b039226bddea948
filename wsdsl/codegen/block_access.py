"""Accesses to tensors of fragments: what a thread holds of a block of 64 x 8 lies side by side, and
what a warp holds too, so that each access is of 16 bytes a thread and of whole lines.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.codegen import inline_ptx
from wsdsl.codegen.addresses import Addresses
from wsdsl.codegen.bits import REDUCTIONS, from_bits, to_bits
from wsdsl.codegen.context import Context
from wsdsl.codegen.fragments import elements, from_elements, texts_of
from wsdsl.codegen.held import Registers, Shape
from wsdsl.codegen.inline_ptx import Global
from wsdsl.ir.fragment_ops import BLOCK_BYTES, COLUMNS, HELD, LINES
from wsdsl.ir.memory_ops import LoadGlobal, StoreGlobal
from wsdsl.ir.op import Value
from wsdsl.ir.types import DType, Tensor


def load_blocks(c: Context, op: LoadGlobal, dtype: DType, shape: Shape) -> Registers:
    found: list[str] = []
    for at, pred in _blocks(c, op.tensor, op.index, shape):
        texts = inline_ptx.load_global_words(c.w, at, 4, pred)
        found += [from_bits(c.w, text, dtype) for text in texts]
    return from_elements(c.w, dtype, shape, found)


def store_blocks(c: Context, op: StoreGlobal, value: Registers) -> None:
    w, dtype = c.w, value.dtype
    texts = [to_bits(w, x, dtype) for x in elements(w, value)]
    blocks = _blocks(c, op.tensor, op.index, value.shape)
    for i, (at, pred) in enumerate(blocks):
        own = texts[HELD * i : HELD * i + HELD]
        if not op.accumulate:
            inline_ptx.store_global(w, at, 32, own, pred)
            continue
        each = 1 if dtype.is_integer else HELD
        for e in range(0, HELD, each):
            to = Global(at.base, at.offset + 4 * e)
            inline_ptx.add_global(w, to, REDUCTIONS[dtype.name], 32, own[e : e + each], pred)


def _blocks(
    c: Context, tensor: Value, index: tuple[Value, ...], shape: Shape
) -> Iterator[tuple[Global, str | None]]:
    """Where the thread's elements of each block lie, and whether the block is in the tensor."""
    w, kind = c.w, tensor.type
    assert isinstance(kind, Tensor) and isinstance(kind.dims[-1], int)
    inside = Addresses(c, tensor, index, shape)
    line, column = (texts_of(w, c.registers(v))[0] for v in index)
    # Of the thread's first element; fragments begin where a block begins.
    line = w.binary("and", "i32", line, -LINES)
    column = w.binary("and", "i32", column, -COLUMNS)
    thread = w.binary("and", "i32", c.threads.tid, 127)
    lines = w.binary("mul", "i64", _wide(c, line), kind.dims[-1] * BLOCK_BYTES // LINES // COLUMNS)
    columns = w.binary("mul", "i64", _wide(c, column), BLOCK_BYTES // COLUMNS)
    own = w.binary("mul", "i64", _wide(c, thread), 4 * HELD)
    pointer = c.pointer(tensor).text
    for step in (own, lines, columns):
        pointer = w.value(f"getelementptr i8, ptr addrspace(1) {pointer}, i64 {step}")
    for block in range(shape[1] // COLUMNS):
        yield Global(pointer, BLOCK_BYTES * block), inside.condition(HELD * block)


def _wide(c: Context, text: str) -> str:
    return c.w.value(f"sext i32 {text} to i64")
