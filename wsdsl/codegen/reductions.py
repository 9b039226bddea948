"""`reduce_columns`: a tree over a thread's own columns, then the lanes that share its rows."""

from __future__ import annotations

from wsdsl.codegen import nvvm
from wsdsl.codegen.block_reductions import join_of, reduce_blocks
from wsdsl.codegen.casts import cast
from wsdsl.codegen.context import Context
from wsdsl.codegen.elementwise import define
from wsdsl.codegen.fragments import as_floats, from_floats, row_offset, texts_of
from wsdsl.codegen.held import Registers
from wsdsl.ir.fragment_ops import ReduceColumns
from wsdsl.ir.types import DTYPES


def convert_reduce_columns(c: Context, op: ReduceColumns) -> None:
    w, x = c.w, c.registers(op.x)
    if op.size:
        reduce_blocks(c, op, x)
        return
    if x.columns == 1:
        # One column, which all lanes of a row hold: it must not be counted by each.
        define(c, op.result, x)
        return
    if x.dtype.is_float:
        texts, type, join = as_floats(w, x), "float", join_of(w, op.fn, x.dtype)
    else:
        wide = cast(w, x, DTYPES["u32" if x.dtype.kind == "uint" else "i32"])
        texts, type, join = list(texts_of(w, wide)), "i32", join_of(w, op.fn, x.dtype)
    rows: dict[int, list[str]] = {}
    for e, text in enumerate(texts):
        rows.setdefault(row_offset(e, x.shape), []).append(text)
    results: list[str] = []
    for held in rows.values():
        while len(held) > 1:
            odd = held[len(held) & ~1 :]
            held = [join(a, b) for a, b in zip(held[::2], held[1::2], strict=False)] + odd
        total = held[0]
        for step in range(x.lanes.across.bit_length() - 1):
            total = join(total, nvvm.shuffle_xor(w, type, total, 1 << step))
        results.append(total)
    shape = x.shape._replace(columns=1)
    if x.dtype.is_float:
        define(c, op.result, from_floats(w, x.dtype, shape, results))
    else:
        kind = DTYPES["u32" if x.dtype.kind == "uint" else "i32"]
        define(c, op.result, cast(w, Registers(kind, *shape, tuple(results)), x.dtype))
