"""Clusters that claim others. What an answer says is open, and the same for all who read it: the
loops that go on by it are one loop, of which nobody knows how often it runs
(`ir/claim_rules.py` has why).
"""

from __future__ import annotations

from wsdsl.ir import barrier_ops as b
from wsdsl.ir.claims import ANSWER_BYTES
from wsdsl.prover.access import item_of, write
from wsdsl.prover.machine import ALL, Agent, Machine, StageParity
from wsdsl.prover.program import LOCAL, SEEN, Instruction
from wsdsl.prover.scalars import fresh
from wsdsl.prover.shared_loads import read_by_threads
from wsdsl.prover.sync import barrier_of, count_in_phase, settle, shown


def claim_cluster(m: Machine, a: Agent, i: Instruction) -> int:
    """A copy to the same item of each CTA."""
    op = i.op
    assert isinstance(op, b.ClaimCluster)
    array = m.model.arrays[op.shared.name]
    state: StageParity = a.slots[i.extra[op.state.name]]
    item_of(m, a, op, array, state.stage, 0, ANSWER_BYTES)
    know = a.know[0]
    ctas = [a.cta]
    if op.ctas > 1:
        ctas = [m.model.reach(a.cta, rank) for rank in range(op.ctas)]
    for cta in ctas:
        held, barriers, stage = barrier_of(m, a, i, (0,), cta)
        event = m.event()
        made = event, 0
        write(m, a, op, array, state.stage, 0, ANSWER_BYTES, know, made, True, cta)
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
