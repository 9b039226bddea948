"""How threads wait for each other: mbarriers, named barriers, meetings, flags, registers.

The checks make the order of a run irrelevant. An arrival must know that the phase before its own is
complete, so it can count in no other; a wait must know the completion before the one it waits for,
and the one after must know the wait, so that a parity is never mistaken for another one.
"""

from __future__ import annotations

from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.op import Op, Value
from wsdsl.prover.failure import Party
from wsdsl.prover.machine.control_flow import truth
from wsdsl.prover.machine.instructions import BLOCKED, LOCAL, SEEN, Instruction
from wsdsl.prover.machine.machine import (
    ALL,
    ELECTED,
    FIRST_LANES,
    WARPS,
    Agent,
    Barrier,
    Machine,
    StageParity,
    union,
)
from wsdsl.prover.machine.model import Array

STALE_ELECTED, STALE = 1, 3
"""Of an agent: its elected thread, or any of its threads, has waited since its last
`tcgen05_fence(after=True)`."""
ALONE = 4
"""The elected thread has waited since those of its warp met."""
VISIBLE = 2
"""Of a barrier's initialisation: a fence has followed it."""


def classes(i: Instruction) -> tuple[int, ...]:
    return ELECTED if i.elected else ALL


def barrier_of(
    m: Machine, a: Agent, i: Instruction, who: tuple[int, ...], cta: int = -1
) -> tuple[Barrier, Array, int]:
    """The barrier an op means, checked to be initialised for those who use it."""
    op: Any = i.op
    array = m.model.arrays[op.barriers.name]
    state: StageParity = a.slots[i.extra[op.state.name]]
    if not 0 <= state.stage < array.num:
        told = f"stage {state.stage} of `{array.label}`, which has {array.num}"
        raise a.fail("misuse", op, told, hint="use one `num` in `advance` and in the barriers")
    cta = a.cta if cta < 0 else cta
    held = m.barriers[cta * m.model.num_barriers + array.first + state.stage]
    m.model.touched.add((cta, array.index))
    if not held.initialised:
        raise a.fail("misuse", op, f"`{array.label}` is used before its initialization")
    for c in who:
        if held.initialised < VISIBLE or held.fenced & ~a.know[c]:
            meeting = "sync_cta" if cta == a.cta else "sync_cluster"
            told = f"`{array.label}` is used, but no synchronization follows its initialization"
            hint = f"add mbarrier_init, fence_mbarrier_init, then {meeting}"
            raise a.fail("misuse", op, told, hint=hint)
    return held, array, state.stage


def shown(array: Array, stage: int, m: Machine, cta: int) -> str:
    where = f" of CTA {cta}" if m.model.num_ctas > 1 else ""
    return f"`{array.label}` stage {stage}{where}"


def mbarrier_init(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.MbarrierInit = i.op
    array = m.model.arrays[op.barriers.name]
    first = a.cta * m.model.num_barriers + array.first
    for stage in range(array.num):
        held = m.barriers[first + stage]
        if held.initialised:
            raise a.fail("misuse", op, f"`{array.label}` is initialized twice")
        held.initialised = 1
    return LOCAL


def fence_mbarrier_init(m: Machine, a: Agent, i: Instruction) -> int:
    """What this thread has initialised is visible to whoever synchronises with it from here on."""
    (event,) = m.happened(a, (0,))
    first = a.cta * m.model.num_barriers
    for held in m.barriers[first : first + m.model.num_barriers]:
        if held.initialised == 1:
            held.initialised, held.fenced = VISIBLE, event
    return LOCAL


def settle(m: Machine, a: Agent, op: Op, held: Barrier, name: str) -> None:
    """Complete the phase if nothing is missing."""
    if held.pending:
        return
    if held.tx < 0:
        told = f"{-held.tx} bytes more than expected arrive at {name}"
        raise a.fail("phase", op, told, hint="set tx_bytes to the total bytes of the copied boxes")
    if held.tx:
        return
    if held.passed & ~held.gathered:
        raise a.fail(
            "phase",
            op,
            f"{name} may complete phase {held.phase} while a warpgroup still waits for the phase "
            "before: it would miss it, and hang",
            held.waiters[-1] if held.waiters else None,
            hint="arrive from the waiting warpgroup before the next phase can complete",
        )
    m.waits &= ~held.passed
    held.passed, held.waiters, held.there = 0, (), 0
    held.phase += 1
    held.pending = held.arrivals
    held.completed |= held.gathered
    held.gathered = 0
    held.before, held.done = held.done, m.event()
    held.completed |= held.done
    m.phases |= held.done


def count_in_phase(
    m: Machine, a: Agent, i: Instruction, held: Barrier, name: str, know: int, what: str
) -> None:
    """Whoever arrives must know that the phase before is over, or it may count in that one."""
    if held.done & ~know:
        raise a.fail(
            "phase",
            i.op,
            f"{what} {name} may count in phase {held.phase - 1}, which may not be complete",
            hint="wait, directly or through other threads, for that phase first",
        )


def arrive(
    m: Machine, a: Agent, i: Instruction, held: Barrier, name: str, count: int, know: int
) -> None:
    count_in_phase(m, a, i, held, name, know, "an arrival on")
    if count > held.pending:
        raise a.fail(
            "phase",
            i.op,
            f"{count} arrival{'s' if count > 1 else ''} on {name}, whose phase {held.phase} awaits "
            f"{held.pending} more of {held.arrivals}",
            hint="make `arrivals` of the barrier equal to the number of arrivals",
        )
    held.gathered |= know
    held.pending -= count
    settle(m, a, i.op, held, name)


def cta_of_rank(m: Machine, a: Agent, i: Instruction, rank: Value) -> int:
    """The CTA that has this rank in the agent's cluster."""
    held = a.slots[i.extra[rank.name]]
    if not isinstance(held, int) or not 0 <= held < m.model.cluster:
        raise a.fail("misuse", i.op, f"no CTA of the cluster has the rank {held}")
    return m.model.reach(a.cta, held)


def landed(m: Machine, a: Agent, held: Barrier, who: tuple[int, ...]) -> int:
    """The event of an arrival at another CTA's barrier: over for whoever has seen that phase
    complete, or met this one later on.
    """
    event = m.event()
    held.remote |= event
    if m.model.meets:
        for c in who:
            a.know[c] |= event
    return event


def pair_of(m: Machine, a: Agent, i: Instruction, cta_group: int) -> tuple[int, ...]:
    """The CTAs that an instruction is about: one's own, or both of a pair whose first it is."""
    if cta_group == 1:
        return (a.cta,)
    rank = m.model.cta_rank(a.cta)
    if not isinstance(rank, int) or rank % 2:
        told = "only the first CTA of a pair can issue an op of the pair"
        raise a.fail("misuse", i.op, told, hint="move it into an `if` by the rank in the cluster")
    return a.cta, m.model.reach(a.cta, rank + 1)


def cta_of_pair(m: Machine, a: Agent, i: Instruction, rank: Value) -> int:
    """The same of a rank that has to be of the agent's pair."""
    cta = cta_of_rank(m, a, i, rank)
    own, other = m.model.cta_rank(a.cta), m.model.cta_rank(cta)
    if not (isinstance(own, int) and isinstance(other, int)) or own // 2 != other // 2:
        raise a.fail("misuse", i.op, f"the CTA of rank {other} is in another pair")
    return cta


def mbarrier_arrive(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.MbarrierArrive = i.op
    if op.pred is not None and not truth(m, a.slots[i.extra[op.pred.name]]):
        return LOCAL
    cta = a.cta
    if op.cta is not None:
        cta = cta_of_rank(m, a, i, op.cta)
    who = ALL if op.each_thread else FIRST_LANES if op.each_warp else ELECTED
    held, array, stage = barrier_of(m, a, i, who, cta)
    know = m.everything(a) if op.each_thread else a.met if op.each_warp else 0
    know |= union(a.know[c] for c in who)
    if cta != a.cta:
        know |= landed(m, a, held, who)
    count = 128 if op.each_thread else 4 if op.each_warp else 1
    arrive(m, a, i, held, shown(array, stage, m, cta), count, know)
    return SEEN


def mbarrier_arrive_expect_tx(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.MbarrierArriveExpectTx = i.op
    cta = a.cta if op.cta is None else cta_of_rank(m, a, i, op.cta)
    held, array, stage = barrier_of(m, a, i, ELECTED, cta)
    name, know = shown(array, stage, m, cta), a.know[0]
    if cta != a.cta:
        know |= landed(m, a, held, ELECTED)
    held.tx += op.tx_bytes
    arrive(m, a, i, held, name, 1, know)
    return SEEN


def mbarrier_wait(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.MbarrierWait = i.op
    who = classes(i)
    held, array, stage = barrier_of(m, a, i, who)
    blocked = held.phase & 1 == a.slots[i.extra[op.state.name]].parity
    # It waits for phase p, the present one or the last: that p - 1 is complete it must know.
    needed = held.done if blocked else held.before
    for c in who:
        if needed & ~a.know[c]:
            raise a.fail(
                "phase",
                op,
                f"this may pass too early: {shown(array, stage, m, a.cta)} may not have completed "
                "the phase before the awaited one, which has the same parity",
                hint="wait for each phase in the thread that waits for the next",
            )
    if blocked:
        return BLOCKED
    for c in who:
        a.know[c] |= held.completed
    event = m.event()
    waited(m, a, i)
    # Whoever hears of this wait hears of those before it, too: one event stands for all.
    earlier = held.passed & (a.know[0] if i.elected else a.did)
    if i.elected:
        a.know[0] |= event
    else:
        a.did |= event
    held.passed = held.passed & ~earlier | event
    m.waits = m.waits & ~earlier | event
    held.waiters = (*held.waiters, Party(a.index, op))
    return SEEN


def waited(m: Machine, a: Agent, i: Instruction) -> None:
    """Its threads have been told of others, or the elected one was."""
    if m.model.columns:
        a.stale |= STALE_ELECTED | ALONE if i.elected else STALE


def sync_warp(m: Machine, a: Agent, i: Instruction) -> int:
    if a.stale & ALONE:
        a.stale = STALE
    for first, others in WARPS:
        a.know[first] = a.know[others] = a.know[first] | a.know[others]
    a.met = a.did
    return LOCAL


def setmaxnreg(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.Setmaxnreg = i.op
    if op.count % 8 or not 24 <= op.count <= 256:
        told = f"setmaxnreg needs a multiple of 8 from 24 to 256, not {op.count} registers"
        raise a.fail("registers", op, told)
    taken = op.count - a.registers
    if taken and op.increase != (taken > 0):
        more = "more" if op.increase else "fewer"
        told = f"{op.count} registers per thread are not {more} than {a.registers}"
        raise a.fail("registers", op, told)
    if taken > m.pool[a.cta]:
        return BLOCKED
    m.pool[a.cta] -= taken
    a.registers = op.count
    return SEEN


def semaphore_wait(m: Machine, a: Agent, i: Instruction) -> int:
    """Pass as late as possible. That the semaphore of a workspace is reached is argued in
    split_k_protocol.py, which needs that no iteration of the work loop waits for an event after the
    semaphore of a later iteration, nor an arrival of all work units for an event after their wait.
    """
    return SEEN if all(m.place(o) >= (m.turn(a), True) for o in m.agents) else BLOCKED
