"""`scan_columns`: a thread's own vector, then the lanes in front of it, then the accesses."""

from __future__ import annotations

from itertools import pairwise

from wsdsl.codegen import nvvm
from wsdsl.codegen.block_reductions import define_from_32_bits, in_32_bits, join_of
from wsdsl.codegen.context import Context
from wsdsl.codegen.fragments import column_offset, row_offset
from wsdsl.ir.fragment_ops import ScanColumns


def convert_scan_columns(c: Context, op: ScanColumns) -> None:
    w, x = c.w, c.registers(op.x)
    lanes = x.lanes
    texts, type = in_32_bits(w, x)
    add, zero = join_of(w, "add", x.dtype), "-0.0" if type == "float" else "0"
    own = w.binary("and", "i32", c.threads.lane, lanes.across - 1)
    behind = {
        step: w.compare("uge", own, step)
        for step in (1 << n for n in range(lanes.across.bit_length() - 1))
    }
    last = w.binary("or", "i32", c.threads.lane, lanes.across - 1)
    accesses: dict[tuple[int, int], list[int]] = {}
    for e in range(len(texts)):
        place = row_offset(e, x.shape), column_offset(e, x.shape) // lanes.columns
        accesses.setdefault(place, []).append(e)
    before: dict[int, str] = {}
    made = list(texts)
    for (row, _), elements in sorted(accesses.items()):
        for left, e in pairwise(elements):
            made[e] = add(made[left], made[e])
        total = made[elements[-1]]
        for step, is_behind in behind.items():
            other = nvvm.shuffle_up(w, type, total, step)
            total = add(total, w.select(is_behind, type, other, zero))
        front = w.select(behind[1], type, nvvm.shuffle_up(w, type, total, 1), zero)
        if row in before:
            front = add(before[row], front)
        for e in elements:
            made[e] = add(front, made[e])
        every = nvvm.shuffle_any(w, type, total, last)
        before[row] = add(before[row], every) if row in before else every
    define_from_32_bits(c, op.result, x, made)
