"""`load_shared`: elements of two or four bytes, a thread's own or the same for several."""

from __future__ import annotations

from wsdsl.codegen import inline_ptx
from wsdsl.codegen.bits import from_bits
from wsdsl.codegen.context import Context
from wsdsl.codegen.elementwise import define, dtype_and_shape
from wsdsl.codegen.fragments import from_elements, texts_of
from wsdsl.codegen.inline_ptx import At
from wsdsl.diagnostics import CompileError, Finding
from wsdsl.ir.memory_ops import LoadShared


def convert_load_shared(c: Context, op: LoadShared) -> None:
    w, shared, index = c.w, c.shared(op.shared), c.registers(op.index)
    dtype, shape = dtype_and_shape(op.result.type)
    if dtype.bits not in (16, 32):
        raise CompileError(
            Finding(f"load_shared reads elements of two or four bytes, not {dtype}", op.loc)
        )
    item = c.item(shared, c.state(op.state).stage)
    if op.first is not None:
        item = w.add(item, w.multiply(c.scalar(op.first).text, dtype.bytes))
    step, first = dtype.bytes * op.stride, shared.offset + op.offset
    places: list[At] = []
    if index.affine is not None:
        base = w.add(item, w.multiply(index.affine.base, step))
        places = [At(base, first + step * offset) for offset in index.affine.offsets]
    else:
        places = [At(w.add(item, w.multiply(x, step)), first) for x in texts_of(w, index)]
    texts = [from_bits(w, inline_ptx.load_shared(w, at, dtype.bits), dtype) for at in places]
    define(c, op.result, from_elements(w, dtype, shape, texts))
