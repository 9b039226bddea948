"""Fragments that CTAs of a cluster send each other."""

from __future__ import annotations

from wsdsl.ir import ops
from wsdsl.ir.ops import ANSWER_BYTES, HELD_BYTES
from wsdsl.ir.types import Fragment, Value
from wsdsl.prover.machine.instructions import LOCAL, SEEN, Instruction
from wsdsl.prover.machine.machine import ALL, Agent, Machine
from wsdsl.prover.machine.model import Array
from wsdsl.prover.machine.scalars import fresh
from wsdsl.prover.memory.smem import Bytes, item_in, item_of, known_to_each, send
from wsdsl.prover.memory.smem_loads import read_by_threads
from wsdsl.prover.protocols.mbarriers import cta_of_rank


def send_fragment(m: Machine, a: Agent, i: Instruction) -> int:
    """Over when the phase completes on which its bytes count. Nothing shows them to the async
    proxy: they are for `receive_fragment` alone.
    """
    op: ops.SendFragment = i.op
    cta = cta_of_rank(m, a, i, op.cta)
    where = _place(m, a, i, op.value.as_fragment)
    send(m, a, i, where, known_to_each(a, ALL), m.everything(a), "fragment", cta, ALL)
    return SEEN


def receive_fragment(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.ReceiveFragment = i.op
    array, item, start, end = _place(m, a, i, op.result.as_fragment)
    for c in ALL:
        read_by_threads(m, a, op, array, item, [(start, end)], c)
    a.slots[i.defines[0]] = 0
    return LOCAL


def _place(m: Machine, a: Agent, i: Instruction, kind: Fragment) -> Bytes:
    op: ops.SendFragment | ops.ReceiveFragment = i.op
    array, item = item_in(m, a, i, op.shared, op.state)
    start = op.offset + _number(m, a, i, op.shift, array)
    end = start + 64 * kind.columns * kind.dtype.bits // 8
    item_of(m, a, op, (array, item, start, end))
    if start % HELD_BYTES:
        told = f"it starts at byte {start} of `{array.label}`, not at a multiple of {HELD_BYTES}"
        raise a.fail("misuse", op, told)
    return array, item, start, end


def _number(m: Machine, a: Agent, i: Instruction, value: Value | None, array: Array) -> int:
    if value is None:
        return 0
    held = a.slots[i.extra[value.name]]
    if not isinstance(held, int):
        raise a.fail("unknown", i.op, f"the offset in `{array.label}` is not known")
    return held


# Cluster launch control (CLC).
def clc_try_cancel(m: Machine, a: Agent, i: Instruction) -> int:
    """A copy to the same item of each CTA."""
    op: ops.ClcTryCancel = i.op
    where = *item_in(m, a, i, op.shared, op.state), 0, ANSWER_BYTES
    item_of(m, a, op, where)
    ctas = [a.cta]
    if op.ctas > 1:
        ctas = [m.model.reach(a.cta, rank) for rank in range(op.ctas)]
    for cta in ctas:
        send(m, a, i, where, a.know[0], a.know[0], "answer", cta)
    return SEEN


def clc_query_cancel(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.ClcQueryCancel = i.op
    array, item = item_in(m, a, i, op.shared, op.state)
    for c in (0,) if i.elected else ALL:
        read_by_threads(m, a, op, array, item, [(0, ANSWER_BYTES)], c)
    fresh(m, a, i)
    return LOCAL
