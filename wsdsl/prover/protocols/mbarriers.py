"""How threads wait for each other: mbarriers, named barriers, joins, semaphores, registers.

The checks make the order of a run irrelevant. An arrival must follow the phase before, which is
complete, so it can count in no other; a wait must know the completion before the one it waits for,
and the one after must know the wait, so that a parity is never mistaken for another one.
"""

from typing import Any

from wsdsl.ir.op import Op, Value
from wsdsl.prover.machine.instructions import Instruction
from wsdsl.prover.machine.machine import ALL, ELECTED, Agent, Barrier, Machine, StageParity
from wsdsl.prover.machine.model import Array

STALE_ELECTED, STALE = 1, 3
"""Of an agent: its elected thread, or any of its threads, has waited since its last fence of TMEM
accesses after a wait."""
ALONE = 4
"""The elected thread has waited since those of its warp met."""
VISIBLE = 2
"""Of a barrier's initialization: a fence has followed it."""


def classes(i: Instruction) -> tuple[int, ...]:
    return ELECTED if i.elected else ALL


def barrier_of(
    m: Machine, a: Agent, i: Instruction, who: tuple[int, ...], cta: int = -1
) -> tuple[Barrier, Array, int]:
    """The barrier an op means, checked to be initialized for those who use it."""
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
    where = f" of CTA {cta}" if len(m.model.ctas) > 1 else ""
    return f"`{array.label}` stage {stage}{where}"


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
    """An arrival must follow the end of the phase before, or it may count in that one."""
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
    """An arrival at another CTA's barrier: complete for threads that have seen that phase
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
    rank = m.model.rank(a.cta)
    if not isinstance(rank, int) or rank % 2:
        told = "only the first CTA of a pair can issue an op of the pair"
        raise a.fail("misuse", i.op, told, hint="move it into an `if` by the rank in the cluster")
    return a.cta, m.model.reach(a.cta, rank + 1)


def cta_of_pair(m: Machine, a: Agent, i: Instruction, rank: Value) -> int:
    """The same of a rank that has to be of the agent's pair."""
    cta = cta_of_rank(m, a, i, rank)
    own, other = m.model.rank(a.cta), m.model.rank(cta)
    if not (isinstance(own, int) and isinstance(other, int)) or own // 2 != other // 2:
        raise a.fail("misuse", i.op, f"the CTA of rank {other} is in another pair")
    return cta


def waited(m: Machine, a: Agent, i: Instruction) -> None:
    """Its threads have heard from others, or the elected one has."""
    if m.model.columns:
        a.stale |= STALE_ELECTED | ALONE if i.elected else STALE
