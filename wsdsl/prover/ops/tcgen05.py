"""Tensor memory: products of one thread, which run in order, their commits, and loads of sums.

Columns of an item are spans like bytes of SMEM, of each half of the lanes that a warp loads or
stores at a time. A product's events are complete when a phase completes on which a later commit of
its thread counts; the thread's own products follow in any case. A load's are complete for threads
that hear of the first `tcgen05_fence` after its `tcgen05_wait_ld`. A thread that has waited has to
run `tcgen05_fence(after=True)` before it accesses tensor memory.

Products and loads are events of the agent's open group, which is closed by the wait for loads: no
partition has both (`ir/verify/tmem_accesses.py`). Stores have a group of their own, open until they
are waited for. A warpgroup's accesses follow its own that it has waited for, since each warp has
lanes of its own.
"""

from itertools import product
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.analysis.smem_descriptors import ATOM, VERSION
from wsdsl.ir.analysis.tcgen05_instructions import STORED, at_once, instructions, stored_shape
from wsdsl.ir.effects import Access, accesses
from wsdsl.ir.hardware.block_scale_factors import (
    TILE_COLUMNS,
    scale_columns,
    stored_at_once,
    word_columns,
)
from wsdsl.ir.hardware.scale_factor_atoms import BYTES, ROWS
from wsdsl.ir.op import Op, Value
from wsdsl.ir.types import Columns, TensorMemory
from wsdsl.ir.verify.threads import threads_of
from wsdsl.prover.machine.control_flow import truth
from wsdsl.prover.machine.instructions import LOCAL, SEEN, Instruction
from wsdsl.prover.machine.machine import ALL, Agent, Group, Machine, union
from wsdsl.prover.memory.smem_accesses import (
    Bytes,
    destinations,
    item_in,
    item_of,
    known_to_each,
    read,
    spans_of,
    write,
)
from wsdsl.prover.memory.smem_effects import ranges_of, read_by_threads
from wsdsl.prover.ops.wgmma import UNWRITTEN, Descriptor, read_operand, waited_for
from wsdsl.prover.protocols.mbarriers import (
    STALE,
    STALE_ELECTED,
    arrive,
    barrier_of,
    pair_of,
    shown,
)
from wsdsl.prover.ptx.expected_paths import TMEM, Fill, of_warps
from wsdsl.prover.ptx.operand_events import descriptor_event, operand_event
from wsdsl.prover.ptx.register_values import BASE
from wsdsl.prover.ptx.sync_trace_builder import ThreadSet, TraceBuilder
from wsdsl.prover.ptx.tcgen05_letters import FIRST_WARP, IN_TENSOR, PREFIX, RING


def _fenced(m: Machine, a: Agent, i: Instruction) -> None:
    if a.stale & (STALE_ELECTED if i.elected else STALE):
        told = "no tcgen05_fence(after=True) follows the last wait of this thread"
        hint = "add a tcgen05_fence(after=True) between the wait and this op"
        raise a.fail("tensor", i.op, told, hint=hint)


def tcgen05_mma(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.Tcgen05Mma = i.op
    _fenced(m, a, i)
    written, *reads = accesses(i.effects, "tmem")
    parts = _columns(m, a, i, written)
    accumulates = truth(m, a.slots[i.extra[op.accumulate.name]])
    event, know = m.event(), a.know[0] | a.open.events
    for cta in pair_of(m, a, i, op.cta_group):
        known = [_is_written(m, cta, part) for part in parts]
        if accumulates and not all(known):
            told = "no op has written the accumulator"
            raise a.fail("tensor", op, told, hint="set `accumulate` to false for the first MMA")
        for part in parts:
            write(m, a, op, part, know, (event, 0), cta=cta)
        for access in reads:
            reader, at = ("tensor", a.index), cta if access.pair else -1
            for part in _columns(m, a, i, access):
                read(m, a, op, part, know, reader, event, know, asynchronous=False, cta=at)
        extents = op.rows, op.columns // op.cta_group
        for value, extent, dtype in zip((op.a, op.b), extents, op.dtypes, strict=True):
            if not isinstance(value.type, Columns):
                held: Any = a.slots[i.extra[value.name]]
                assert isinstance(held, Descriptor)
                read_operand(m, a, op, held, extent, dtype, a.know[0], event, cta)
    a.open.events |= event
    return LOCAL


def _columns(m: Machine, a: Agent, i: Instruction, access: Access) -> list[Bytes]:
    """Columns of TMEM, in each half of the lanes, or bytes of SMEM."""
    array, item = item_in(m, a, i, access.of, access.item)
    found = [(array, item, *ends) for ends in ranges_of(a, i, array, access.spans[0])]
    for where in found:
        item_of(m, a, i.op, where)
    return found


def _is_written(m: Machine, cta: int, where: Bytes) -> bool:
    array, item, begin, end = where
    spans = spans_of(m, cta, array, item, begin, end)
    return all(s.written for s in spans if begin <= s.start and s.end <= end)


def tcgen05_cp(m: Machine, a: Agent, i: Instruction) -> int:
    """Copies precede later MMAs of their thread."""
    op: ops.Tcgen05Cp = i.op
    _fenced(m, a, i)
    source, target = (_columns(m, a, i, x)[0] for x in accesses(i.effects, "smem", "tmem"))
    event, know, reader = m.event(), a.know[0] | a.open.events, ("wgmma", a.index)
    for cta in pair_of(m, a, i, op.cta_group):
        read(m, a, op, source, a.know[0], reader, event, know, cta=cta)
        write(m, a, op, target, know, (event, 0), cta=cta)
    a.open.events |= event
    return LOCAL


def store_scale_factors(m: Machine, a: Agent, i: Instruction) -> int:
    """Each warp reads all of them, and writes its lanes: complete once all warps are heard from."""
    op: ops.StoreScaleFactors = i.op
    _fenced(m, a, i)
    source = item_in(m, a, i, op.shared, op.shared_state)
    lines = [(op.offset, op.offset + op.bytes)]
    for c in ALL:
        read_by_threads(m, a, op, *source, lines, c)
    return _store(m, a, i, known_to_each(a, ALL))


def tcgen05_st(m: Machine, a: Agent, i: Instruction) -> int:
    """Each warp writes its lanes: complete once all warps are heard from."""
    _fenced(m, a, i)
    return _store(m, a, i, _known_in_order(a))


def _store(m: Machine, a: Agent, i: Instruction, know: int) -> int:
    (access,), event = accesses(i.effects, "tmem"), m.event()
    for where in _columns(m, a, i, access):
        write(m, a, i.op, where, know, (event, 0))
    _stored(a, i.op).events |= event
    return LOCAL


def _known_in_order(a: Agent) -> int:
    """Events that each thread has seen, or waited for itself: each warp has its lanes."""
    return known_to_each(a, ALL) | union(g.events for g in a.groups if not g.open)


def _stored(a: Agent, op: Op) -> Group:
    """The stores that were not waited for yet, and one more."""
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
    """One group of loads, and one of stores, for any number of waits before a fence."""
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
        # It must complete before that CTA ends. Events complete for the thread at issue are
        # complete when it arrives, and so are its earlier arrivals here.
        landed = m.event()
        held.remote |= landed
        know = a.open.events | a.know[0] | landed
        a.open.events |= landed if cta == a.cta else 0
        arrive(m, a, i, held, shown(array, stage, m, cta), 1, know)
    return SEEN


def tcgen05_ld(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.Tcgen05Ld = i.op
    _fenced(m, a, i)
    (access,) = accesses(i.effects, "tmem")
    (where,) = _columns(m, a, i, access)
    event, know, reader = m.event(), _known_in_order(a), ("tensor", a.index, op.half)
    # Columns without a write may be read, if unused: an empty loop has no MMA.
    before = know | a.open.events
    a.slots[i.defines[0]] = 0 if _is_written(m, a.cta, where) else UNWRITTEN
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
    own = m.model.rank(a.cta)
    other = m.model.reach(a.cta, own ^ 1) if op.cta_group > 1 and isinstance(own, int) else a.cta
    know = known_to_each(a, (0, 1))
    for array in m.model.arrays.values():
        for item in range(array.num) if array.name in m.model.columns else ():
            for cta in {a.cta, other}:
                write(m, a, op, (array, item, 0, array.bytes), know, (0, 0), cta=cta)
    return LOCAL


def _emit(
    t: TraceBuilder,
    op: Op,
    who: ThreadSet,
    kind: str,
    where: tuple[Value, Value, int],
    detail: str = "",
) -> None:
    """Emit an instruction on an item's columns (columns, state, first), each warp on its lanes."""
    sums, state, at = where
    item, kind_of = t.definers[sums], sums.type_as(Columns)
    start, half, apart = TMEM + item.first + at, getattr(op, "half", 0), getattr(op, "apart", 0)
    by_warps = threads_of(op) == "warpgroup"
    columns = [(group - who.first) * apart + (half << 20) for group in range(8)]
    lanes = [by_warps * (x + (warp << 21)) for x in columns for warp in range(4)]
    state_of = state if kind_of.num > 1 else None
    fill = Fill(state=state_of, start=start, stride=kind_of.columns, further=of_warps(lanes))
    t.emit(op, PREFIX + kind, detail, RING, fill=fill)


def trace_tcgen05_alloc(t: TraceBuilder, op: ops.Tcgen05Alloc, _: ThreadSet) -> None:
    t.places.words.add(op.offset)
    group, columns = f".cta_group::{op.cta_group}", op.result.type_as(TensorMemory).columns
    relinquish = f"{PREFIX}relinquish_alloc_permit{group}", "", None
    allocate = f"{PREFIX}alloc{group}", str(columns), Fill(start=op.offset)
    _by_first_warp(t, op, allocate, relinquish)


def trace_tcgen05_dealloc(t: TraceBuilder, op: ops.Tcgen05Dealloc, _: ThreadSet) -> None:
    columns = op.memory.type_as(TensorMemory).columns
    kind = f"{PREFIX}dealloc.cta_group::{op.cta_group}"
    _by_first_warp(t, op, (kind, str(columns), Fill(start=TMEM)))


def trace_tcgen05_mma(t: TraceBuilder, op: ops.Tcgen05Mma, who: ThreadSet) -> None:
    known = t.known.get(op.accumulate)
    flag = "p" if known is None else str(int(known))
    issued, there = instructions(op), IN_TENSOR if op.a_state else ""
    for step, own in enumerate(issued):
        kind = f"mma.cta_group::{op.cta_group}.kind::{own.kind}"
        detail = f"{'1' if step else flag}, {own.descriptor}{there}"
        _emit(t, op, who, kind, (op.sums, op.state, op.column), detail)
        if op.a_state is not None:
            at = op.a_column + step * op.a_columns // len(issued)
            _emit(t, op, who, kind, (op.a, op.a_state, at), "operand 1")
        else:
            operand_event(t, op, op.a, step, VERSION)
        operand_event(t, op, op.b, step, VERSION)
        if op.scales is not None and op.scale_state is not None:
            where = op.scales, op.scale_state
            _emit(t, op, who, kind, (*where, own.a_scale), "operand 4")
            _emit(t, op, who, kind, (*where, own.b_scale), "operand 5")


def trace_tcgen05_commit(t: TraceBuilder, op: ops.Tcgen05Commit, _: ThreadSet) -> None:
    many = ".multicast::cluster" if op.multicast is not None else ""
    kind = f"{PREFIX}commit.cta_group::{op.cta_group}.mbarrier::arrive::one{many}"
    t.emit(op, kind, fill=t.of_barrier(op, cta=t.of_ranks(op.multicast)))


def trace_tcgen05_ld(t: TraceBuilder, op: ops.Tcgen05Ld, who: ThreadSet) -> None:
    for at, width in at_once(op.width):
        _emit(t, op, who, f"ld.16x256b.x{width // 8}", (op.sums, op.state, op.column + at))


def trace_tcgen05_st(t: TraceBuilder, op: ops.Tcgen05St, who: ThreadSet) -> None:
    shape = stored_shape(op)
    for at, width in at_once(op.width):
        kind = f"st.{shape}.x{width // STORED[shape]}"
        _emit(t, op, who, kind, (op.columns, op.state, op.column + at))


def trace_store_scale_factors(t: TraceBuilder, op: ops.StoreScaleFactors, who: ThreadSet) -> None:
    for number, columns in enumerate(word_columns(op.rows, op.words)):
        if number:  # The first ones have been read.
            t.emit(op, "ld.shared")
        at = op.column + columns.start
        for count in stored_at_once(len(columns)):
            _emit(t, op, who, f"st.32x32b.x{count}", (op.scales, op.state, at))
            at += count


def trace_tcgen05_cp(t: TraceBuilder, op: ops.Tcgen05Cp, who: ThreadSet) -> None:
    kind = f"cp.cta_group::{op.cta_group}.32x128b.warpx4"
    for word, atom in product(range(op.words), range(op.rows // ROWS)):
        at = op.column + scale_columns(op.rows, word) + TILE_COLUMNS * atom
        _emit(t, op, who, kind, (op.scales, op.state, at))
        place = t.definers[op.shared].offset + op.offset + (atom * op.words + word) * BYTES
        of = op.shared, op.shared_state
        descriptor_event(t, op, of, BASE + place >> 4, ATOM | VERSION, (0,) * 32)


def trace_tcgen05_fence(t: TraceBuilder, op: ops.Tcgen05Fence, _: ThreadSet) -> None:
    t.emit(op, f"{PREFIX}fence::{'after' if op.after else 'before'}_thread_sync")


def _by_first_warp(t: TraceBuilder, op: Op, *letters: tuple[str, str, Fill | None]) -> None:
    before = t.now
    t.now = t.silent(before, threads=FIRST_WARP)
    for kind, detail, fill in letters:
        t.emit(op, kind, detail, fill=fill)
    own = t.silent(t.now)
    t.now = t.silent(own, t.silent(before, threads=~FIRST_WARP))


def tcgen05_alloc(m: Machine, a: Agent, i: Instruction) -> int:
    return LOCAL
