"""TMA stores of transposed panels of which a launch has so many lines: boxes of 8 lines each."""

from __future__ import annotations

import math
from collections.abc import Sequence

from wsdsl.codegen import inline_ptx
from wsdsl.codegen.context import Context
from wsdsl.codegen.inline_ptx import At
from wsdsl.ir.copy_rules import apart_of
from wsdsl.ir.memory_ops import MakeTensorMap, TmaStore
from wsdsl.ir.narrowing import WIDTH_STEP


def copy_lines(c: Context, op: TmaStore, source: At, coordinates: Sequence[str]) -> None:
    """By a warp, from its part at `source`, what lies in front of the last line."""
    w, map, made = c.w, c.pointer(op.map), c.made[op.map]
    assert isinstance(made, MakeTensorMap)
    size = made.tensor.as_tensor.dtype.size(math.prod(made.box))
    shared, at = op.row_dim == op.line_dim, list(coordinates)
    num = apart_of(op) // size if shared else op.lines // WIDTH_STEP
    step = num * WIDTH_STEP if shared else made.box[op.row_dim]
    before = w.multiply(c.threads.warp, step)
    at[op.row_dim] = w.add(at[op.row_dim], before)
    end = str(op.lines)
    if op.narrower is not None:
        end = w.binary("sub", "i32", end, c.scalar(op.narrower).text)
    for n in range(num):
        place = list(at)
        place[op.line_dim] = w.add(place[op.line_dim], n * WIDTH_STEP)
        line = w.add(before, n * WIDTH_STEP) if shared else str(n * WIDTH_STEP)
        inside = w.compare("slt", line, end)
        pred = w.binary("and", "i1", c.threads.first_lane, inside)
        part = At(source.base, source.offset + n * size)
        inline_ptx.tma_store(w, map.text, place[::-1], part, pred, op.accumulate)
