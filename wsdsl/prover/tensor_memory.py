"""Tensor memory: products of one thread, which run in order, their commits, and loads of sums.

Columns of an item are spans like bytes of SMEM. A product's events are over when a phase completes
on which a later commit of its thread counts; the thread's own products follow in any case. A load's
are over for those who hear of the first `tensor_fence` behind its `tensor_wait`. And whoever has
waited has to run `tensor_fence(after=True)` before it touches tensor memory.

Both are events of the agent's open group, which is closed by `tensor_wait`: no partition has
products and loads (`ir/tensor_rules.py`).
"""

from __future__ import annotations

from typing import Any

from wsdsl.ir import tensor_ops as t
from wsdsl.ir.types import Accumulator
from wsdsl.prover.access import item_of, known_to_each, read, spans_of, write
from wsdsl.prover.control import truth
from wsdsl.prover.machine import ALL, Agent, Group, Machine, StageParity
from wsdsl.prover.products import Descriptor, read_operand
from wsdsl.prover.program import LOCAL, SEEN, Instruction
from wsdsl.prover.sync import STALE, STALE_ELECTED, arrive, barrier_of, shown


def _fenced(m: Machine, a: Agent, i: Instruction) -> None:
    if a.stale & (STALE_ELECTED if i.elected else STALE):
        raise m.fail(
            "tensor",
            a,
            i.op,
            "no tensor_fence(after=True) since this thread waited for others",
            hint="tensor_fence(after=True) between the wait and this",
        )


def tensor_product(m: Machine, a: Agent, i: Instruction) -> int:
    op = i.op
    assert isinstance(op, t.TensorProduct)
    _fenced(m, a, i)
    array = m.model.arrays[op.sums.name]
    state: StageParity = a.slots[i.extra[op.state.name]]
    begin, end = op.column, op.column + op.columns
    item_of(m, a, op, array, state.stage, begin, end)
    if truth(m, a.slots[i.extra[op.accumulate.name]]):
        spans = spans_of(m, a.cta, array, state.stage, begin, end)
        if not all(s.written for s in spans if begin <= s.start and s.end <= end):
            raise m.fail(
                "tensor",
                a,
                op,
                "accumulates on columns that nothing has written",
                hint="`accumulate` must be false for the first product",
            )
    event = m.event()
    know = a.know[0] | a.open.events
    made = (event, 0)
    write(m, a, op, array, state.stage, begin, end, know, made, False, a.cta)
    for value, extent, dtype in zip((op.a, op.b), (op.rows, op.columns), op.dtypes, strict=True):
        held: Any = a.slots[i.extra[value.name]]
        assert isinstance(held, Descriptor)
        read_operand(m, a, op, held, extent, dtype, a.know[0], event)
    a.open.events |= event
    return LOCAL


def tensor_commit(m: Machine, a: Agent, i: Instruction) -> int:
    op = i.op
    assert isinstance(op, t.TensorCommit)
    held, array, stage = barrier_of(m, a, i, (0,))
    # What was over for the thread when it issued this is over when it arrives.
    know = a.open.events | a.know[0]
    arrive(m, a, i, held, shown(array, stage, m, a.cta), 1, know)
    return SEEN


def tensor_load(m: Machine, a: Agent, i: Instruction) -> int:
    op = i.op
    assert isinstance(op, t.TensorLoad) and isinstance(op.result.type, Accumulator)
    _fenced(m, a, i)
    array = m.model.arrays[op.sums.name]
    state: StageParity = a.slots[i.extra[op.state.name]]
    begin, end = op.column, op.column + op.result.type.columns
    item_of(m, a, op, array, state.stage, begin, end)
    event, know = m.event(), known_to_each(a, ALL)
    # What nobody has written may be read: of no products there is no sum, and none is used.
    read(
        m,
        a,
        op,
        array,
        state.stage,
        begin,
        end,
        know,
        ("tensor", a.index, op.half),
        event,
        know | a.open.events,
        asynchronous=False,
        any_value=True,
    )
    a.open.events |= event
    # The lanes of a warp load together, and so have come past what each has waited for.
    a.met = a.did
    return LOCAL


def tensor_wait(m: Machine, a: Agent, i: Instruction) -> int:
    a.groups.append(a.open)
    a.open = Group()
    for slot in i.defines:
        a.slots[slot] = 0
    return LOCAL


def tensor_fence(m: Machine, a: Agent, i: Instruction) -> int:
    op = i.op
    assert isinstance(op, t.TensorFence)
    if op.after:
        a.stale &= ~(STALE_ELECTED if i.elected else STALE)
    elif not i.elected:
        for group in a.groups:
            for c in ALL:
                a.know[c] |= group.events
        a.groups.clear()
    return LOCAL


def free_tensor_memory(m: Machine, a: Agent, i: Instruction) -> int:
    """By the CTA's first warp: nothing reads or writes the columns any more."""
    _fenced(m, a, i)
    if a.index % m.model.num_agents:
        return LOCAL
    for array in m.model.arrays.values():
        if array.name not in m.model.columns:
            continue
        for item in range(array.num):
            know, nothing = known_to_each(a, (0, 1)), (0, 0)
            write(m, a, i.op, array, item, 0, array.bytes, know, nothing, False, a.cta)
    return LOCAL
