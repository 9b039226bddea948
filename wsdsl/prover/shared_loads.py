"""Threads that read in SMEM."""

from __future__ import annotations

import math

from wsdsl.ir import memory_ops as mem
from wsdsl.ir import transpose_ops as tr
from wsdsl.ir.copy_rules import boxes_of_warps
from wsdsl.ir.op import Op
from wsdsl.ir.swizzle import SWIZZLE_SPAN, lines_reached
from wsdsl.ir.types import Fragment, Tensor
from wsdsl.prover.access import item_of, read
from wsdsl.prover.machine import ALL, WARPS, Agent, Machine, StageParity
from wsdsl.prover.model import Array
from wsdsl.prover.program import LOCAL, Instruction
from wsdsl.prover.scalars import fresh


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
    op = i.op
    assert isinstance(op, mem.LoadPanels) and isinstance(op.result.type, Fragment)
    array = m.model.arrays[op.shared.name]
    kind = op.result.type
    state: StageParity = a.slots[i.extra[op.state.name]]
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
        read_by_threads(m, a, op, array, state.stage, ranges, c)
    a.slots[i.defines[0]] = 0
    return LOCAL


def load_shared(m: Machine, a: Agent, i: Instruction) -> int:
    op = i.op
    assert isinstance(op, mem.LoadShared)
    array = m.model.arrays[op.shared.name]
    state: StageParity = a.slots[i.extra[op.state.name]]
    for c in ALL:
        read_by_threads(m, a, op, array, state.stage, [(op.offset, op.offset + op.bytes)], c)
    return fresh(m, a, i) if op.result.name in m.model.needed else LOCAL


def partials_item(a: Agent, i: Instruction) -> int:
    """The item of parts that an op says by a state, if by any."""
    op = i.op
    assert isinstance(op, (mem.StorePartials, mem.ReducePartials))
    if op.state is None:
        return 0
    state: StageParity = a.slots[i.extra[op.state.name]]
    return state.stage


def load_transposed(m: Machine, a: Agent, i: Instruction) -> int:
    """Each warp its rows' lines."""
    op = i.op
    assert isinstance(op, tr.LoadTransposed)
    array, kind = m.model.arrays[op.shared.name], op.result.as_fragment
    line, rows = op.length * kind.dtype.bytes, kind.rows // len(WARPS)
    item = a.slots[i.extra[op.item.name]]
    for number, warp in enumerate(WARPS):
        start = (op.line + number * rows) * line
        for c in warp:
            read_by_threads(m, a, op, array, item, [(start, start + rows * line)], c)
    return fresh(m, a, i) if op.result.name in m.model.needed else LOCAL


def reduce_partials(m: Machine, a: Agent, i: Instruction) -> int:
    op = i.op
    assert isinstance(op, mem.ReducePartials)
    array, kind = m.model.arrays[op.shared.name], op.result.type
    along = "columns" if op.over_rows else "rows"
    words = 4 * (getattr(kind, along) if isinstance(kind, Fragment) else 1)
    first, size = op.offset + a.rank * op.each * words, op.parts * words
    for c in ALL:
        read_by_threads(m, a, op, array, partials_item(a, i), [(first, first + size)], c)
    return fresh(m, a, i)


def thread_store(m: Machine, a: Agent, i: Instruction) -> int:
    """Each thread has read once it goes on, and knows of no other."""
    op = i.op
    assert isinstance(op, mem.ThreadStore) and isinstance(op.tensor.type, Tensor)
    array = m.model.arrays[op.shared.name]
    size = math.prod(op.box) * op.tensor.type.dtype.bits // 8
    item = a.slots[i.extra[op.item.name]]
    item_of(m, a, op, (array, item, 0, array.bytes))
    for held in boxes_of_warps(op, size):
        for c in WARPS[held.warp]:
            read_by_threads(m, a, op, array, item, [(held.bytes.start, held.bytes.stop)], c)
    return LOCAL
