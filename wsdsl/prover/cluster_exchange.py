"""Fragments that CTAs of a cluster send each other."""

from __future__ import annotations

from wsdsl.ir import barrier_ops as b
from wsdsl.ir import memory_ops as mem
from wsdsl.ir.claims import ANSWER_BYTES
from wsdsl.ir.fragment_ops import HELD_BYTES
from wsdsl.ir.op import Op, Value
from wsdsl.ir.types import Fragment
from wsdsl.prover.access import item_of, known_to_each, write
from wsdsl.prover.machine import ALL, Agent, Machine, StageParity
from wsdsl.prover.model import Array
from wsdsl.prover.program import LOCAL, SEEN, Instruction
from wsdsl.prover.scalars import fresh
from wsdsl.prover.shared_loads import read_by_threads
from wsdsl.prover.sync import barrier_of, count_in_phase, cta_of_rank, settle, shown


def send_fragment(m: Machine, a: Agent, i: Instruction) -> int:
    """Over when the phase completes on which its bytes count. Nothing shows them to the async
    proxy: they are for `receive_fragment` alone.
    """
    op = i.op
    assert isinstance(op, mem.SendFragment) and isinstance(op.value.type, Fragment)
    cta = cta_of_rank(m, a, i, op.cta)
    array, item, start, end = _place(m, a, i, op, op.value.type)
    held, barriers, stage = barrier_of(m, a, i, ALL, cta)
    know, event = known_to_each(a, ALL), m.event()
    where = array, item, start, end
    write(m, a, op, where, know, (event, m.event()), cta=cta)
    name = shown(barriers, stage, m, cta)
    count_in_phase(m, a, i, held, name, know, "the bytes of this fragment on")
    # All threads' bytes land after they were sent: what phases and waits were over then are over.
    held.gathered |= event | m.everything(a) & (m.waits | m.phases)
    held.tx -= end - start
    settle(m, a, op, held, name)
    return SEEN


def receive_fragment(m: Machine, a: Agent, i: Instruction) -> int:
    op = i.op
    assert isinstance(op, mem.ReceiveFragment) and isinstance(op.result.type, Fragment)
    array, item, start, end = _place(m, a, i, op, op.result.type)
    for c in ALL:
        read_by_threads(m, a, op, array, item, [(start, end)], c)
    a.slots[i.defines[0]] = 0
    return LOCAL


def _place(
    m: Machine, a: Agent, i: Instruction, op: Op, kind: Fragment
) -> tuple[Array, int, int, int]:
    assert isinstance(op, (mem.SendFragment, mem.ReceiveFragment))
    array = m.model.arrays[op.shared.name]
    state: StageParity = a.slots[i.extra[op.state.name]]
    start = op.offset + _number(m, a, i, op.shift, array)
    end = start + 64 * kind.columns * kind.dtype.bits // 8
    item_of(m, a, op, (array, state.stage, start, end))
    if start % HELD_BYTES:
        told = f"it starts at byte {start} of `{array.label}`, not at a multiple of {HELD_BYTES}"
        raise a.fail("misuse", op, told)
    return array, state.stage, start, end


def _number(m: Machine, a: Agent, i: Instruction, value: Value | None, array: Array) -> int:
    if value is None:
        return 0
    held = a.slots[i.extra[value.name]]
    if not isinstance(held, int):
        raise a.fail("unknown", i.op, f"the offset in `{array.label}` is not known")
    return held


# Cluster launch control (CLC).
def claim_cluster(m: Machine, a: Agent, i: Instruction) -> int:
    """A copy to the same item of each CTA."""
    op = i.op
    assert isinstance(op, b.ClaimCluster)
    array = m.model.arrays[op.shared.name]
    state: StageParity = a.slots[i.extra[op.state.name]]
    where = array, state.stage, 0, ANSWER_BYTES
    item_of(m, a, op, where)
    know = a.know[0]
    ctas = [a.cta]
    if op.ctas > 1:
        ctas = [m.model.reach(a.cta, rank) for rank in range(op.ctas)]
    for cta in ctas:
        held, barriers, stage = barrier_of(m, a, i, (0,), cta)
        event = m.event()
        write(m, a, op, where, know, (event, 0), True, cta)
        name = shown(barriers, stage, m, cta)
        count_in_phase(m, a, i, held, name, know, "the bytes of this answer on")
        # It comes after it was asked for: what phases were over then are over.
        held.gathered |= event | know & (m.waits | m.phases)
        held.tx -= ANSWER_BYTES
        settle(m, a, op, held, name)
    return SEEN


def claimed_cluster(m: Machine, a: Agent, i: Instruction) -> int:
    op = i.op
    assert isinstance(op, b.ClaimedCluster)
    array = m.model.arrays[op.shared.name]
    state: StageParity = a.slots[i.extra[op.state.name]]
    for c in (0,) if i.elected else ALL:
        read_by_threads(m, a, op, array, state.stage, [(0, ANSWER_BYTES)], c)
    fresh(m, a, i)
    return LOCAL
