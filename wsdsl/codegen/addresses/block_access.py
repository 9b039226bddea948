"""Accesses to tensors of fragments and to packed tensors."""

from collections.abc import Iterator

from wsdsl.codegen.addresses.gmem_addresses import Addresses
from wsdsl.codegen.arithmetic.bits import REDUCTIONS, from_bits, to_bits
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.fragment_registers import elements, from_elements, texts_of
from wsdsl.codegen.inline_ptx import Global, add_global, ld_global_vector, st_global
from wsdsl.codegen.llvm_types import dtype_and_shape, num_elements
from wsdsl.codegen.value_registers import Registers, Shape
from wsdsl.ir.hardware.packed_layout import block_bytes
from wsdsl.ir.hardware.swizzle import PACKED_LINES
from wsdsl.ir.hardware.tma_box import TMA_ALIGN
from wsdsl.ir.ops import BLOCK_BYTES, BLOCK_COLUMNS, BLOCK_ROWS, HELD, LoadGlobal, StoreGlobal
from wsdsl.ir.types import THREADS, DType, Value


def load_blocks(c: Context, op: LoadGlobal, dtype: DType, shape: Shape) -> Registers:
    results: list[str] = []
    for at, pred in _blocks(c, op.tensor, op.index, shape):
        texts = ld_global_vector(c.w, at, 32, 4, pred)
        results += [from_bits(c.w, text, dtype) for text in texts]
    return from_elements(c.w, dtype, shape, results)


def store_blocks(c: Context, op: StoreGlobal, value: Registers) -> None:
    w, dtype = c.w, value.dtype
    texts = [to_bits(w, x, dtype) for x in elements(w, value)]
    for i, (at, pred) in enumerate(_blocks(c, op.tensor, op.index, value.shape)):
        own = texts[HELD * i : HELD * i + HELD]
        if not op.accumulate:
            st_global(w, at, 32, own, pred)
            continue
        each = 1 if dtype.is_integer else HELD
        for e in range(0, HELD, each):
            to = Global(at.base, at.offset + 4 * e)
            add_global(w, to, REDUCTIONS[dtype.name], 32, own[e : e + each], pred)


def _blocks(
    c: Context, tensor: Value, index: tuple[Value, ...], shape: Shape
) -> Iterator[tuple[Global, str | None]]:
    """Where the thread's elements of each block lie, and whether the block is in the tensor."""
    w, length = c.w, tensor.as_tensor.dims[-1]
    assert isinstance(length, int)
    inside = Addresses(c, tensor, index, shape)
    line, column = (texts_of(w, c.registers(v))[0] for v in index)
    # Of the thread's first element; fragments begin where a block begins.
    line = w.binary("and", "i32", line, -BLOCK_ROWS)
    column = w.binary("and", "i32", column, -BLOCK_COLUMNS)
    thread = w.binary("and", "i32", c.threads.tid, 127)
    lines = w.binary(
        "mul", "i64", _wide(c, line), length * BLOCK_BYTES // BLOCK_ROWS // BLOCK_COLUMNS
    )
    columns = w.binary("mul", "i64", _wide(c, column), BLOCK_BYTES // BLOCK_COLUMNS)
    own = w.binary("mul", "i64", _wide(c, thread), 4 * HELD)
    pointer = c.pointer(tensor).text
    for step in (own, lines, columns):
        pointer = w.value(f"getelementptr i8, ptr addrspace(1) {pointer}, i64 {step}")
    for block in range(shape[1] // BLOCK_COLUMNS):
        yield Global(pointer, BLOCK_BYTES * block), inside.condition(HELD * block)


def packed_words(c: Context, op: LoadGlobal, addresses: Addresses, constant: bool) -> list[str]:
    """Return the thread's packed groups of each block of a packed tensor
    (`ir/hardware/packed_layout.py`), filled with zeros.
    """
    w, kind, (_, shape) = c.w, op.tensor.as_tensor, dtype_and_shape(op.result.type)
    *outer, line, column = (texts_of(w, c.registers(v))[0] for v in op.index)
    at = [*outer, w.binary("and", "i32", line, -PACKED_LINES)]
    strides = [c.strides[op.tensor.name, d] for d in range(len(at))]
    steps = [w.binary("mul", "i64", _wide(c, x), n) for x, n in zip(at, strides, strict=True)]
    first = _wide(c, w.binary("and", "i32", column, -PACKED_LINES))
    steps.append(w.binary("mul", "i64", first, PACKED_LINES))
    thread = _wide(c, w.binary("and", "i32", c.threads.tid, THREADS - 1))
    own = w.binary("mul", "i64", thread, TMA_ALIGN)
    pointer = w.value(f"getelementptr i8, ptr addrspace(1) {c.pointer(op.tensor).text}, i64 {own}")
    for step in steps:
        bytes = w.binary("ashr", "i64", w.binary("mul", "i64", step, kind.dtype.bits), 3)
        pointer = w.value(f"getelementptr i8, ptr addrspace(1) {pointer}, i64 {bytes}")
    size, elements = block_bytes(kind.dtype), num_elements(shape.rows, PACKED_LINES, shape.lanes)
    words = list[str]()
    for block in range(shape.columns // PACKED_LINES):
        pred = addresses.condition(elements * block)
        for vector in range(0, size, THREADS * TMA_ALIGN):
            place = Global(pointer, size * block + vector)
            words += ld_global_vector(w, place, 32, 4, pred, constant)
    return words


def _wide(c: Context, text: str) -> str:
    return c.w.value(f"sext i32 {text} to i64")
