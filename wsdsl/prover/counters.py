"""Counters in SMEM. Threads add to them in any order, as they read: to that all have been cleared,
and nobody stores them meanwhile. To clear and to store is to write a share of them.
"""

from __future__ import annotations

import math

from wsdsl.ir.counter_layout import VECTOR, WARP, WORD, counter_bytes, share_of
from wsdsl.ir.counter_ops import AddCounters, ClearCounters, StoreCounters
from wsdsl.prover.access import item_of, known_to_each, write
from wsdsl.prover.machine import ALL, Agent, Machine
from wsdsl.prover.program import LOCAL, Instruction
from wsdsl.prover.shared_loads import read_by_threads
from wsdsl.prover.shared_stores import warp_wrote


def add_counters(m: Machine, a: Agent, i: Instruction) -> int:
    op = i.op
    assert isinstance(op, AddCounters)
    array, size = m.model.arrays[op.shared.name], counter_bytes(op.extents, op.copies)
    for c in ALL:
        read_by_threads(m, a, op, array, 0, [(0, size)], c)
    return LOCAL


def own_counters(m: Machine, a: Agent, i: Instruction) -> int:
    op = i.op
    assert isinstance(op, ClearCounters | StoreCounters)
    array, size = m.model.arrays[op.shared.name], counter_bytes(op.extents, op.copies)
    if isinstance(op, ClearCounters):
        each = share_of(size, op.by, VECTOR)
    else:
        each = share_of(math.prod(op.extents), op.by, WARP) * WORD * op.copies
    start, end = min(a.rank * each, size), min((a.rank + 1) * each, size)
    if start < end:
        item_of(m, a, op, array, 0, start, end)
        events = warp_wrote(m, a, ALL)
        write(m, a, op, array, 0, start, end, known_to_each(a, ALL), events, False, a.cta)
    return LOCAL
