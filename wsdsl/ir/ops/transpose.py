"""SCHEDULED: fragments that change their rows for their columns, by way of SMEM.

    store_transposed(parts=(%x0, %x1), shared=%turned, item=%wg, step=16)
    named_barrier_sync(barrier=8, num_warpgroups=1)
    %y: frag<u8[64x128] lanes 16x8> = load_transposed(shared=%turned, item=%wg, length=128, step=16)

Columns are stored as rows of SMEM, at the addresses of `line_place` in `ir/hardware/swizzle.py`.
"""

from __future__ import annotations

from wsdsl.ir.op import OneResult, Op, Value, op_class
from wsdsl.ir.ops.mbarrier import SCHEDULED


@op_class(SCHEDULED, "warpgroup")
class StoreTransposed(Op):
    """The threads of the warpgroup write `parts`, fragments of the same columns that follow one
    another along their rows, to item `item` (i32) of `shared`, from its line `line` on: a column is
    a line, and as long as the parts have rows. Its bytes are exchanged by `step` (`line_place`).
    """

    parts: tuple[Value, ...]
    shared: Value
    item: Value
    line: int = 0
    step: int


@op_class(SCHEDULED, "warpgroup")
class LoadTransposed(OneResult):
    """The threads of the warpgroup read what `store_transposed` wrote to item `item` (i32) of
    `shared`: the rows of the result are lines from `line` on, its columns the elements of them from
    `first` on. Lines have `length` elements, and were exchanged by `step`.
    """

    shared: Value
    item: Value
    line: int = 0
    first: int = 0
    length: int
    step: int
