"""`prefetch_tile`: a line of L2 a thread, and as many further ones as a tile has."""

from __future__ import annotations

from wsdsl.codegen import inline_ptx
from wsdsl.codegen.context import Context
from wsdsl.codegen.tensor_box import TensorBox
from wsdsl.codegen.thread_load import THREADS
from wsdsl.ir.global_memory import L2_LINE
from wsdsl.ir.prefetch_ops import PrefetchTile


def convert_prefetch_tile(c: Context, op: PrefetchTile) -> None:
    w, coordinates = c.w, tuple(c.scalar(v).text for v in op.coordinates)
    box = TensorBox(c, op.tensor, coordinates, op.row_dim)
    per_row = -(-op.columns * box.dtype.bytes // L2_LINE)
    own = w.binary("and", "i32", c.threads.tid, THREADS - 1)
    for first in range(0, op.rows * per_row, THREADS):
        place = w.add(own, first)
        row = w.binary("udiv", "i32", place, per_row)
        along = w.multiply(w.binary("urem", "i32", place, per_row), L2_LINE // box.dtype.bytes)
        pointer, left, rows = box.at(row, along)
        there = w.compare("sgt", left, 0)
        if rows is not None:
            there = w.binary("and", "i1", there, w.compare("sgt", rows, 0))
        if first + THREADS > op.rows * per_row:
            last = w.compare("slt", place, op.rows * per_row)
            there = w.binary("and", "i1", there, last)
        inline_ptx.prefetch_global(w, pointer, there)
