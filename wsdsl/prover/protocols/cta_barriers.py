"""Barriers of whole warpgroups: the CTA's, the cluster's, and the named ones."""

from __future__ import annotations

from functools import reduce
from operator import or_

from wsdsl.ir import ops
from wsdsl.prover.machine.instructions import BLOCKED, SEEN, Instruction
from wsdsl.prover.machine.machine import ALL, Agent, Barrier, Machine
from wsdsl.prover.protocols.mbarriers import count_in_phase, settle, waited


def _meet(
    m: Machine,
    a: Agent,
    i: Instruction,
    key: tuple[int, int],
    parties: int,
    wait: bool,
    shown: int = -1,
) -> int:
    """A barrier of whole warpgroups, that is there from the start. Who waits arrives first. `shown`
    are the events that it may hand on.
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
    parties, shown = m.model.num_agents * m.model.num_ctas, -1
    if i.op.relaxed:
        # Each of them is the fence behind a barrier's initialisation.
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
