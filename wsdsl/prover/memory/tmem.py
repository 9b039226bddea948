"""Tensor memory: products of one thread, which run in order, their commits, and loads of sums.

Columns of an item are spans like bytes of SMEM, of each half of the lanes that a warp loads or
stores at a time. A product's events are over when a phase completes
on which a later commit of its thread counts; the thread's own products follow in any case. A load's
are over for those who hear of the first `tcgen05_fence` behind its `tcgen05_wait_ld`. And
whoever has
waited has to run `tcgen05_fence(after=True)` before it touches tensor memory.

Products and loads are events of the agent's open group, which is closed by the wait for loads: no
partition has both (`ir/verify/tmem_accesses.py`). Stores have a group of their own, open until they
are waited for. A warpgroup's accesses follow its own that it has waited for, since each warp has
lanes of its own.
"""

from __future__ import annotations

from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.hardware.block_scale_factors import WORD, scale_columns, word_columns
from wsdsl.ir.hardware.scale_factor_atoms import BYTES, ROWS
from wsdsl.ir.hardware.tcgen05_shapes import LANES
from wsdsl.ir.op import Op
from wsdsl.ir.types import Columns
from wsdsl.prover.machine.control_flow import truth
from wsdsl.prover.machine.instructions import LOCAL, SEEN, Instruction
from wsdsl.prover.machine.machine import ALL, Agent, Group, Machine, union
from wsdsl.prover.machine.model import Array
from wsdsl.prover.memory.smem_accesses import (
    destinations,
    item_in,
    item_of,
    known_to_each,
    read,
    spans_of,
    write,
)
from wsdsl.prover.memory.smem_effects import read_by_threads
from wsdsl.prover.memory.wgmma_operands import UNWRITTEN, Descriptor, read_operand, waited_for
from wsdsl.prover.protocols.mbarriers import (
    STALE,
    STALE_ELECTED,
    arrive,
    barrier_of,
    pair_of,
    shown,
)


def _fenced(m: Machine, a: Agent, i: Instruction) -> None:
    if a.stale & (STALE_ELECTED if i.elected else STALE):
        told = "no tcgen05_fence(after=True) follows the last wait of this thread"
        hint = "add a tcgen05_fence(after=True) between the wait and this op"
        raise a.fail("tensor", i.op, told, hint=hint)


def tcgen05_mma(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.Tcgen05Mma = i.op
    _fenced(m, a, i)
    array, item = item_in(m, a, i, op.sums, op.state)
    parts = _parts(array, op.column, op.columns, _halves(op.rows))
    item_of(m, a, op, (array, item, *parts[-1]))
    accumulates = truth(m, a.slots[i.extra[op.accumulate.name]])
    event, know = m.event(), a.know[0] | a.open.events
    for cta in pair_of(m, a, i, op.cta_group):
        known = [_is_written(m, cta, array, item, part) for part in parts]
        if accumulates and not all(known):
            told = "no op has written the accumulator"
            raise a.fail("tensor", op, told, hint="set `accumulate` to false for the first MMA")
        for part in parts:
            write(m, a, op, (array, item, *part), know, (event, 0), cta=cta)
        if op.scales is not None:
            _read_scales(m, a, i, event, cta)
        extents = op.rows, op.columns // op.cta_group
        for value, extent, dtype in zip((op.a, op.b), extents, op.dtypes, strict=True):
            if isinstance(value.type, Columns):
                _read_columns(m, a, i, event)
                continue
            held: Any = a.slots[i.extra[value.name]]
            assert isinstance(held, Descriptor)
            read_operand(m, a, op, held, extent, dtype, a.know[0], event, cta)
    a.open.events |= event
    return LOCAL


def _read_columns(m: Machine, a: Agent, i: Instruction, event: int) -> None:
    """Of the left operand."""
    op: ops.Tcgen05Mma = i.op
    array, item = item_in(m, a, i, op.a, op.a_state)
    before, reader = a.know[0] | a.open.events, ("tensor", a.index)
    for part in _parts(array, op.a_column, op.a_columns, _halves(op.rows)):
        where = array, item, *part
        item_of(m, a, op, where)
        read(m, a, op, where, before, reader, event, before, asynchronous=False)


def _halves(rows: int) -> tuple[int, ...]:
    """Of the lanes of each warp, 16 of which hold the rows of a product of 64."""
    return (0, 1) if rows == LANES else (0,)


def _parts(
    array: Array, first: int, columns: int, halves: tuple[int, ...]
) -> list[tuple[int, int]]:
    """Where columns begin and end, in each half of the lanes."""
    starts = [half * (array.bytes // 2) + first for half in halves]
    return [(start, start + columns) for start in starts]


def _is_written(m: Machine, cta: int, array: Array, item: int, part: tuple[int, int]) -> bool:
    begin, end = part
    spans = spans_of(m, cta, array, item, begin, end)
    return all(s.written for s in spans if begin <= s.start and s.end <= end)


def _read_scales(m: Machine, a: Agent, i: Instruction, event: int, cta: int) -> None:
    """Of both operands."""
    op: ops.Tcgen05Mma = i.op
    array, item = item_in(m, a, i, op.scales, op.scale_state)
    for column, rows in ((op.a_scale, op.rows), (op.b_scale, op.columns)):
        for own in word_columns(rows, op.k // (WORD * op.block)):
            where = array, item, column + own.start, column + own.stop
            item_of(m, a, op, where)
            before, reader = a.know[0] | a.open.events, ("tensor", a.index)
            read(m, a, op, where, before, reader, event, before, asynchronous=False, cta=cta)


def tcgen05_cp(m: Machine, a: Agent, i: Instruction) -> int:
    """Its thread's products follow it in order."""
    op: ops.Tcgen05Cp = i.op
    _fenced(m, a, i)
    source = item_in(m, a, i, op.shared, op.shared_state)
    target = item_in(m, a, i, op.scales, op.state)
    event, know, reader = m.event(), a.know[0] | a.open.events, ("wgmma", a.index)
    end = op.offset + BYTES * (op.rows // ROWS) * op.words
    source = *source, op.offset, end
    target = *target, op.column, op.column + scale_columns(op.rows, op.words)
    item_of(m, a, op, source)
    item_of(m, a, op, target)
    for cta in pair_of(m, a, i, op.cta_group):
        read(m, a, op, source, a.know[0], reader, event, know, cta=cta)
        write(m, a, op, target, know, (event, 0), cta=cta)
    a.open.events |= event
    return LOCAL


def store_scale_factors(m: Machine, a: Agent, i: Instruction) -> int:
    """Each warp reads all of them, and writes its own lanes: over for who hears from all warps."""
    op: ops.StoreScaleFactors = i.op
    _fenced(m, a, i)
    source = item_in(m, a, i, op.shared, op.shared_state)
    lines = [(op.offset, op.offset + op.bytes)]
    for c in ALL:
        read_by_threads(m, a, op, *source, lines, c)
    (array, item), event = item_in(m, a, i, op.scales, op.state), m.event()
    for own in word_columns(op.rows, op.words):
        where = array, item, op.column + own.start, op.column + own.stop
        item_of(m, a, op, where)
        write(m, a, op, where, known_to_each(a, ALL), (event, 0))
    _stored(a, op).events |= event
    return LOCAL


def tcgen05_st(m: Machine, a: Agent, i: Instruction) -> int:
    """Each warp writes its own lanes: over for who hears from all warps."""
    op: ops.Tcgen05St = i.op
    _fenced(m, a, i)
    (array, item), event = item_in(m, a, i, op.columns, op.state), m.event()
    stores = _stored(a, op)
    (part,) = _parts(array, op.column + a.rank * op.apart, op.width, (op.half,))
    where = array, item, *part
    item_of(m, a, op, where)
    write(m, a, op, where, _known_in_order(a), (event, 0))
    stores.events |= event
    return LOCAL


def _known_in_order(a: Agent) -> int:
    """What each thread knows, and what it has waited for itself: each warp has lanes of its own."""
    return known_to_each(a, ALL) | union(g.events for g in a.groups if not g.open)


def _stored(a: Agent, op: Op) -> Group:
    """The stores that were not waited for yet, one more of which begins."""
    # The lanes of a warp store together, as they load.
    a.met = a.did
    for group in a.groups:
        if group.open:
            return group
    a.groups.append(Group(op=op, open=True))
    return a.groups[-1]


def tcgen05_wait_st(m: Machine, a: Agent, i: Instruction) -> int:
    for group in [group for group in a.groups if group.open]:
        a.groups.remove(group)
        _waited_for(a, group)
    return LOCAL


def _waited_for(a: Agent, group: Group) -> None:
    """One group of loads, and one of stores, whatever number of waits is in front of a fence."""
    group.open = False
    for held in a.groups:
        if not held.open and (held.op is None) == (group.op is None):
            held.events |= group.events
            return
    a.groups.append(group)


def tcgen05_commit(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.Tcgen05Commit = i.op
    for cta in destinations(m, a, i, op.multicast):
        held, array, stage = barrier_of(m, a, i, (0,), cta)
        # It must be over before that CTA ends. What was over for the thread when it issued this is
        # over when it arrives, and so are its earlier arrivals here.
        landed = m.event()
        held.remote |= landed
        know = a.open.events | a.know[0] | landed
        a.open.events |= landed if cta == a.cta else 0
        arrive(m, a, i, held, shown(array, stage, m, cta), 1, know)
    return SEEN


def tcgen05_ld(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.Tcgen05Ld = i.op
    _fenced(m, a, i)
    array, item = item_in(m, a, i, op.sums, op.state)
    (part,) = _parts(array, op.column + a.rank * op.apart, op.width, (op.half,))
    where = array, item, *part
    item_of(m, a, op, where)
    event, know, reader = m.event(), _known_in_order(a), ("tensor", a.index, op.half)
    # What nobody has written may be read, if it is not used: of no products there is no sum.
    before = know | a.open.events
    a.slots[i.defines[0]] = 0 if _is_written(m, a.cta, array, item, part) else UNWRITTEN
    read(m, a, op, where, know, reader, event, before, asynchronous=False, any_value=True)
    a.open.events |= event
    # The lanes of a warp load together, and so have come past what each has waited for.
    a.met = a.did
    return LOCAL


def tcgen05_wait_ld(m: Machine, a: Agent, i: Instruction) -> int:
    _waited_for(a, a.open)
    a.open = Group()
    for load, slot in zip(i.op.loads, i.defines, strict=True):
        a.slots[slot] = a.slots[i.extra[load.name]]
    return waited_for(m, a, i)


def tcgen05_fence(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.Tcgen05Fence = i.op
    if op.after:
        a.stale &= ~(STALE_ELECTED if i.elected else STALE)
    elif not i.elected:
        for group in [group for group in a.groups if not group.open]:
            for c in ALL if group.op is None else ():
                a.know[c] |= group.events
            if group.op is not None:
                a.did |= group.events
                a.met |= group.events
        a.groups = [group for group in a.groups if group.open]
    return LOCAL


def tcgen05_dealloc(m: Machine, a: Agent, i: Instruction) -> int:
    """By the CTA's first warp: nothing reads or writes the columns any more, nor those of the other
    CTA of a pair, which are freed with them.
    """
    op: ops.Tcgen05Dealloc = i.op
    _fenced(m, a, i)
    if a.index % m.model.num_agents:
        return LOCAL
    own = m.model.cta_rank(a.cta)
    other = m.model.reach(a.cta, own ^ 1) if op.cta_group > 1 and isinstance(own, int) else a.cta
    know = known_to_each(a, (0, 1))
    for array in m.model.arrays.values():
        for item in range(array.num) if array.name in m.model.columns else ():
            for cta in {a.cta, other}:
                write(m, a, op, (array, item, 0, array.bytes), know, (0, 0), cta=cta)
    return LOCAL
