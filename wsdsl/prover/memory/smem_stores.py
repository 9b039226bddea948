"""Threads that write in SMEM."""

from __future__ import annotations

import math

from wsdsl.ir import ops
from wsdsl.ir.hardware.histogram_layout import VECTOR, WARP, WORD, counter_bytes, share_of
from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN, lines_reached
from wsdsl.ir.ops import AddBins, ClearBins, StoreBins
from wsdsl.ir.types import DTYPES
from wsdsl.prover.machine.instructions import LOCAL, SEEN, Instruction
from wsdsl.prover.machine.machine import ALL, WARPS, Agent, Machine
from wsdsl.prover.memory.smem import EVERY, item_in, item_of, known_to_each, send, write
from wsdsl.prover.memory.smem_loads import read_by_threads


def thread_load(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.ThreadLoad = i.op
    return _threads_write(m, a, i, op.rows * op.columns * op.tensor.as_tensor.dtype.bits // 8)


def clear_panels(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.ClearPanels = i.op
    return _threads_write(m, a, i, op.rows * op.columns * DTYPES[op.dtype].bits // 8)


def _threads_write(m: Machine, a: Agent, i: Instruction, size: int) -> int:
    """All threads of the warpgroup, to so many bytes of the item."""
    op: ops.ThreadLoad | ops.ClearPanels = i.op
    where = *item_in(m, a, i, op.shared, op.state), op.offset, op.offset + size
    item_of(m, a, op, where)
    over, shown_later = m.event(), m.event()
    a.did |= over
    m.unshown.append((a.index, EVERY, shown_later))
    write(m, a, op, where, known_to_each(a, ALL), (over, shown_later))
    return LOCAL


def warp_wrote(m: Machine, a: Agent, who: tuple[int, ...]) -> tuple[int, int]:
    """Events of a write by a warp's threads: over, and shown to the async proxy."""
    over = shown_later = 0
    for event in m.happened(a, who):
        over |= event
    for c in who:
        event = m.event()
        shown_later |= event
        m.unshown.append((a.index, c, event))
    return over, shown_later


def store_shared(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.StoreShared = i.op
    if op.state is not None:
        return _store_lines(m, a, i, op)
    (array, item), kind = item_in(m, a, i, op.shared, op.item), op.value.as_fragment
    item_of(m, a, op, (array, item, 0, array.bytes))
    rows = op.line if op.transposed and op.half else 16
    size = rows * kind.columns * kind.dtype.bits // 8
    if op.before + size > array.bytes // 4:
        raise a.fail("misuse", op, f"{op.before + size} of {array.bytes // 4} bytes per warp")
    size *= 4 if op.joined else 1
    for quarter, warp in enumerate((ALL,) if op.joined else WARPS):
        start = quarter * array.bytes // 4 + op.before
        where = array, item, start, start + size
        write(m, a, op, where, known_to_each(a, warp), warp_wrote(m, a, warp))
    return LOCAL


def _store_lines(m: Machine, a: Agent, i: Instruction, op: ops.StoreShared) -> int:
    """To lines of the panels of a tile; to all of them where it is not known which."""
    assert op.start is not None
    array, item = item_in(m, a, i, op.shared, op.state)
    first, span = a.slots[i.extra[op.start.name]], SWIZZLE_SPAN[op.swizzle]
    reach = lines_reached(op.apart)
    if isinstance(first, int) and not 0 <= first <= op.rows - reach:
        raise a.fail("misuse", op, f"rows {first} to {first + reach} of a tile of {op.rows}")
    for number, warp in enumerate(WARPS):
        events = warp_wrote(m, a, warp)
        for panel in range(op.panels):
            low, high = panel * op.rows, (panel + 1) * op.rows
            if isinstance(first, int):
                low += first + op.apart * number
                high = low + 16
            where = array, item, op.offset + low * span, op.offset + high * span
            item_of(m, a, op, where)
            write(m, a, op, where, known_to_each(a, warp), events)
    return LOCAL


def store_transposed(m: Machine, a: Agent, i: Instruction) -> int:
    """All warps write to each line."""
    op: ops.StoreTransposed = i.op
    kinds, (array, item) = [v.as_fragment for v in op.parts], item_in(m, a, i, op.shared, op.item)
    line = sum(kind.rows for kind in kinds) * kinds[0].dtype.bytes
    where = array, item, op.line * line, (op.line + kinds[0].columns) * line
    item_of(m, a, op, where)
    write(m, a, op, where, known_to_each(a, ALL), warp_wrote(m, a, ALL))
    return LOCAL


def store_partials(m: Machine, a: Agent, i: Instruction) -> int:
    """Each warp to the words of its rows; of one row, which several warps may have, once."""
    op: ops.StorePartials = i.op
    kind, (array, item) = op.x.as_fragment, item_in(m, a, i, op.shared, op.state)
    part = 0 if op.part is None else a.slots[i.extra[op.part.name]]
    if not isinstance(part, int):
        raise a.fail("unknown", op, f"the part of `{array.label}` is not known")
    rows = kind.lanes.of_warp(kind.rows)
    if op.over_rows:
        size = WORD * kind.columns
        for number, warp in enumerate(WARPS):
            start = op.offset + (4 * part + number) * size
            where = array, 0, start, start + size
            item_of(m, a, op, where)
            write(m, a, op, where, known_to_each(a, warp), warp_wrote(m, a, warp))
        return LOCAL
    part = part * kind.lanes.warps + op.each * a.rank
    for number, warp in enumerate(WARPS):
        group, own = divmod(number, kind.lanes.warps)
        if group and kind.rows == 1:
            continue
        word = (part + own) * kind.rows + group * rows
        start = op.offset + WORD * word
        where = array, item, start, start + WORD * rows
        item_of(m, a, op, where)
        events, known = warp_wrote(m, a, warp), known_to_each(a, warp)
        for rank in range(op.ctas):
            cta = a.cta if op.ctas == 1 else m.model.reach(a.cta, rank)
            if op.barriers is None:
                write(m, a, op, where, known, events, cta=cta)
            else:
                # Waiters for the phase know all earlier events of the threads that may send.
                send(m, a, i, where, known, m.everything(a), "part", cta, ALL, known)
    return SEEN if op.ctas > 1 else LOCAL


# Privatized SMEM bins.
def add_bins(m: Machine, a: Agent, i: Instruction) -> int:
    op: AddBins = i.op
    array, size = m.model.arrays[op.shared.name], counter_bytes(op.extents, op.copies)
    for c in ALL:
        read_by_threads(m, a, op, array, 0, [(0, size)], c)
    return LOCAL


def own_counters(m: Machine, a: Agent, i: Instruction) -> int:
    op: ClearBins | StoreBins = i.op
    array, size = m.model.arrays[op.shared.name], counter_bytes(op.extents, op.copies)
    if isinstance(op, ClearBins):
        each = share_of(size, op.by, VECTOR)
    else:
        each = share_of(math.prod(op.extents), op.by, WARP) * WORD * op.copies
    start, end = min(a.rank * each, size), min((a.rank + 1) * each, size)
    if start < end:
        where = array, 0, start, end
        item_of(m, a, op, where)
        write(m, a, op, where, known_to_each(a, ALL), warp_wrote(m, a, ALL))
    return LOCAL
