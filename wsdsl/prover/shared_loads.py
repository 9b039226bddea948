"""Threads that read in SMEM."""

from __future__ import annotations

import math

from wsdsl.ir import memory_ops as mem
from wsdsl.ir.copy_rules import boxes_of_warps
from wsdsl.ir.target import SWIZZLE_SPAN
from wsdsl.ir.types import Fragment, Tensor
from wsdsl.prover.access import item_of, known_to_each, read
from wsdsl.prover.machine import ALL, WARPS, Agent, Machine, StageParity
from wsdsl.prover.program import LOCAL, Instruction
from wsdsl.prover.scalars import fresh


def load_panels(m: Machine, a: Agent, i: Instruction) -> int:
    """Over, for who writes there by TMA, with a fence of each who reads."""
    op = i.op
    assert isinstance(op, mem.LoadPanels) and isinstance(op.result.type, Fragment)
    array = m.model.arrays[op.shared.name]
    kind = op.result.type
    state: StageParity = a.slots[i.extra[op.state.name]]
    first = 0 if op.start is None else a.slots[i.extra[op.start.name]]
    lines = (first, first + kind.rows) if isinstance(first, int) else (0, op.rows)
    if lines[1] > op.rows:
        raise m.fail("misuse", a, op, f"lines {lines[0]} to {lines[1]} of a tile of {op.rows}")
    span = SWIZZLE_SPAN[op.swizzle]
    panels = range(-(-kind.columns * kind.dtype.bits // 8 // span))
    # Whole panels lie one behind the other: one range, of many if lines are 16 bytes of a vector.
    size = op.rows * span
    ranges = [(panel * size + lines[0] * span, panel * size + lines[1] * span) for panel in panels]
    if lines == (0, op.rows):
        ranges = [(0, len(panels) * size)]
    for c in ALL:
        event, reader = m.event(), ("threads", a.index, c)
        m.unshown.append((a.index, c, event))
        for begin, end in ((op.offset + low, op.offset + high) for low, high in ranges):
            item_of(m, a, op, array, state.stage, begin, end)
            read(m, a, op, array, state.stage, begin, end, a.know[c], reader, event, 0, False)
    a.slots[i.defines[0]] = 0
    return LOCAL


def load_shared(m: Machine, a: Agent, i: Instruction) -> int:
    """A warp's threads read together: each of them knows when all have."""
    op = i.op
    assert isinstance(op, mem.LoadShared)
    array = m.model.arrays[op.shared.name]
    state: StageParity = a.slots[i.extra[op.state.name]]
    start, end = op.offset, op.offset + op.bytes
    item_of(m, a, op, array, state.stage, start, end)
    for warp in WARPS:
        know, event = known_to_each(a, warp), m.event()
        reader = ("load", a.index, warp)
        read(m, a, op, array, state.stage, start, end, know, reader, event, know, False)
        for c in warp:
            a.know[c] |= event
    return fresh(m, a, i) if op.result.name in m.model.needed else LOCAL


def thread_store(m: Machine, a: Agent, i: Instruction) -> int:
    """Each thread has read once it goes on, and knows of no other."""
    op = i.op
    assert isinstance(op, mem.ThreadStore) and isinstance(op.tensor.type, Tensor)
    array = m.model.arrays[op.shared.name]
    size = math.prod(op.box) * op.tensor.type.dtype.bits // 8
    item = a.slots[i.extra[op.item.name]]
    item_of(m, a, op, array, item, 0, array.bytes)
    boxes = boxes_of_warps(op, size)
    for place, warp in enumerate(WARPS):
        start, end = boxes[place].start, boxes[place].stop
        for c in warp:
            event, reader = m.event(), ("threads", a.index, c)
            read(m, a, op, array, item, start, end, a.know[c], reader, event, 0, False)
            a.know[c] |= event
    return LOCAL
