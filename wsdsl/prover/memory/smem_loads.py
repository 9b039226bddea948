"""Threads that read in SMEM."""

from __future__ import annotations

import math

from wsdsl.ir import ops
from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN, lines_reached
from wsdsl.ir.op import Op
from wsdsl.ir.types import Fragment
from wsdsl.ir.verify.copies import boxes_of_warps
from wsdsl.prover.machine.instructions import LOCAL, Instruction
from wsdsl.prover.machine.machine import ALL, WARPS, Agent, Machine
from wsdsl.prover.machine.model import Array
from wsdsl.prover.machine.scalars import fresh
from wsdsl.prover.memory.smem import item_in, item_of, read


def read_by_threads(
    m: Machine, a: Agent, op: Op, array: Array, item: int, ranges: list[tuple[int, int]], c: int
) -> None:
    """Threads of class `c` read: each knows when it has, and of no other. For who writes there by
    TMA it is over with the next fence of theirs: nothing else orders the generic proxy's reads
    before the async proxy's writes.
    """
    event, before = m.event(), a.know[c]
    copied = array.name in m.model.copied
    if copied:
        for index, k, earlier in m.unshown:
            before |= earlier if (index, k) == (a.index, c) else 0
    for begin, end in ranges:
        where, reader = (array, item, begin, end), ("threads", a.index, c)
        item_of(m, a, op, where)
        read(m, a, op, where, a.know[c], reader, event, before, False)
    if copied:
        m.unshown.append((a.index, c, event))
    else:
        a.know[c] |= event


def load_panels(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.LoadPanels = i.op
    array, item = item_in(m, a, i, op.shared, op.state)
    kind = op.result.as_fragment
    first = 0 if op.start is None else a.slots[i.extra[op.start.name]]
    reached = lines_reached(op.apart) if kind.rows > 1 else 1
    lines = (first, first + reached) if isinstance(first, int) else (0, op.rows)
    if lines[1] > op.rows:
        raise a.fail("misuse", op, f"rows {lines[0]} to {lines[1]} exceed a tile of {op.rows} rows")
    span = SWIZZLE_SPAN[op.swizzle]
    panels = range(-(-kind.columns * kind.dtype.bits // 8 // span))
    # Whole panels lie one behind the other: one range, of many if lines are 16 bytes of a vector.
    size = op.rows * span
    ranges = [(panel * size + lines[0] * span, panel * size + lines[1] * span) for panel in panels]
    if lines == (0, op.rows):
        ranges = [(0, len(panels) * size)]
    ranges = [(op.offset + low, op.offset + high) for low, high in ranges]
    for c in ALL:
        read_by_threads(m, a, op, array, item, ranges, c)
    a.slots[i.defines[0]] = 0
    return LOCAL


def load_shared(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.LoadShared = i.op
    array, item = item_in(m, a, i, op.shared, op.state)
    for c in ALL:
        read_by_threads(m, a, op, array, item, [(op.offset, op.offset + op.bytes)], c)
    return fresh(m, a, i) if op.result.name in m.model.needed else LOCAL


def load_transposed(m: Machine, a: Agent, i: Instruction) -> int:
    """Each warp its rows' lines."""
    op: ops.LoadTransposed = i.op
    (array, item), kind = item_in(m, a, i, op.shared, op.item), op.result.as_fragment
    line, rows = op.length * kind.dtype.bytes, kind.rows // len(WARPS)
    for number, warp in enumerate(WARPS):
        start = (op.line + number * rows) * line
        for c in warp:
            read_by_threads(m, a, op, array, item, [(start, start + rows * line)], c)
    return fresh(m, a, i) if op.result.name in m.model.needed else LOCAL


def reduce_partials(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.ReducePartials = i.op
    (array, item), kind = item_in(m, a, i, op.shared, op.state), op.result.type
    along = "columns" if op.over_rows else "rows"
    words = 4 * (getattr(kind, along) if isinstance(kind, Fragment) else 1)
    first, size = op.offset + a.rank * op.each * words, op.parts * words
    for c in ALL:
        read_by_threads(m, a, op, array, item, [(first, first + size)], c)
    return fresh(m, a, i)


def thread_store(m: Machine, a: Agent, i: Instruction) -> int:
    """Each thread has read once it goes on, and knows of no other."""
    op: ops.ThreadStore = i.op
    array, item = item_in(m, a, i, op.shared, op.item)
    size = math.prod(op.box) * op.tensor.as_tensor.dtype.bits // 8
    item_of(m, a, op, (array, item, 0, array.bytes))
    for held in boxes_of_warps(op, size):
        for c in WARPS[held.warp]:
            read_by_threads(m, a, op, array, item, [(held.bytes.start, held.bytes.stop)], c)
    return LOCAL
