"""Barriers of whole warpgroups (CTA, cluster, named) and of warps, and proxy fences."""

from functools import reduce
from operator import or_

from wsdsl.ir import ops
from wsdsl.prover.machine.instructions import BLOCKED, LOCAL, SEEN, Instruction
from wsdsl.prover.machine.machine import ALL, WARPS, Agent, Barrier, Machine
from wsdsl.prover.memory.smem_accesses import EVERY
from wsdsl.prover.protocols.mbarriers import ALONE, STALE, count_in_phase, settle, waited
from wsdsl.prover.ptx.expected_paths import Fill, of_warps
from wsdsl.prover.ptx.sync_events import EVERYWHERE
from wsdsl.prover.ptx.sync_trace_builder import ThreadSet, TraceBuilder


def _meet(
    m: Machine,
    a: Agent,
    i: Instruction,
    key: tuple[int, int],
    parties: int,
    wait: bool,
    shown: int = -1,
) -> int:
    """A barrier of whole warpgroups, always initialized. A waiting thread arrives first. `shown`
    are the events that it may forward.
    """
    held = m.named.get(key)
    if held is None:
        held = m.named[key] = Barrier(parties, pending=parties)
    if a.named >= 0:
        if held.phase == a.named:
            return BLOCKED
        a.named = -1
        waited(m, a, i)
        for c in ALL:
            a.know[c] |= held.completed
        return SEEN
    if held.arrivals != parties:
        if held.pending != held.arrivals:
            raise a.fail(
                "misuse",
                i.op,
                f"named barrier {key[1]} has {parties} warpgroups here, {held.arrivals} elsewhere",
            )
        held.arrivals = held.pending = parties
    if held.there >> a.index & 1:
        told = f"it arrives twice at named barrier {key[1]}"
        raise a.fail("misuse", i.op, f"{told} before the barrier completes")
    held.there |= 1 << a.index
    phase = held.phase
    know = m.everything(a)
    count_in_phase(m, a, i, held, f"named barrier {key[1]}", know, "its arrival on")
    held.gathered |= know & shown
    held.pending -= 1
    settle(m, a, i.op, held, f"named barrier {key[1]}")
    if wait:
        a.named, a.at = phase, key
        if held.phase != phase:
            return _meet(m, a, i, key, parties, wait, shown)
        # It has arrived, which others may notice; it stands here until all have.
        return BLOCKED
    return SEEN


def sync_cta(m: Machine, a: Agent, i: Instruction) -> int:
    return _meet(m, a, i, (a.cta, 0), m.model.num_agents, True)


def sync_cluster(m: Machine, a: Agent, i: Instruction) -> int:
    parties, shown = m.model.num_agents * len(m.model.ctas), -1
    if i.op.relaxed:
        # Each of them is the fence after a barrier's initialization.
        shown = reduce(or_, (held.fenced for held in m.barriers), 0)
    return _meet(m, a, i, (-1, -1), parties, True, shown)


def named_barrier_sync(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.NamedBarrierSync = i.op
    return _meet(m, a, i, (a.cta, _number(a, i, op)), op.num_warpgroups, True)


def named_barrier_arrive(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.NamedBarrierArrive = i.op
    return _meet(m, a, i, (a.cta, _number(a, i, op)), op.num_warpgroups, False)


def _number(a: Agent, i: Instruction, op: ops.NamedBarrierSync | ops.NamedBarrierArrive) -> int:
    item = 0 if op.item is None else a.slots[i.extra[op.item.name]]
    if type(item) is not int:
        told = "the named barrier depends on more than the warpgroup"
        raise a.fail("unknown", op, told, hint="compute it from warpgroup_index and constants")
    if not 0 <= item < op.num:
        raise a.fail("misuse", op, f"item {item} exceeds {op.num} named barriers")
    return op.barrier + item


def sync_warp(m: Machine, a: Agent, i: Instruction) -> int:
    if a.stale & ALONE:
        a.stale = STALE
    for first, others in WARPS:
        a.know[first] = a.know[others] = a.know[first] | a.know[others]
    a.met = a.did
    return LOCAL


def fence_async_proxy(m: Machine, a: Agent, i: Instruction) -> int:
    who = (0,) if i.elected else ALL
    kept: list[tuple[int, int, int]] = []
    for index, c, event in m.unshown:
        if index == a.index and c == EVERY and not i.elected:
            a.did |= event
        elif index == a.index and c in who:
            a.know[c] |= event
        else:
            kept.append((index, c, event))
    m.unshown = kept
    return LOCAL


def trace_sync_cluster(t: TraceBuilder, op: ops.SyncCluster, _: ThreadSet) -> None:
    t.emit(op, "barrier.cluster.arrive" + ".relaxed" * op.relaxed)
    t.emit(op, "barrier.cluster.wait")


def trace_named_barrier_sync(t: TraceBuilder, op: ops.NamedBarrierSync, _: ThreadSet) -> None:
    _trace_named(t, op, "bar.sync")


def trace_named_barrier_arrive(t: TraceBuilder, op: ops.NamedBarrierArrive, _: ThreadSet) -> None:
    _trace_named(t, op, "bar.arrive")


def _trace_named(
    t: TraceBuilder, op: ops.NamedBarrierSync | ops.NamedBarrierArrive, kind: str
) -> None:
    items, threads = t.of_warpgroups(op.item), str(128 * op.num_warpgroups)
    number = [x if x is None else op.barrier + x for x in items for _ in range(4)]
    detail = f"{op.barrier}, {threads}" if op.item is None else threads
    t.emit(op, kind, detail, fill=None if op.item is None else Fill(number=of_warps(number)))


def trace_fence_async_proxy(t: TraceBuilder, op: ops.FenceAsyncProxy, _: ThreadSet) -> None:
    t.emit(op, "fence.proxy.async", EVERYWHERE if op.everywhere else "")
