"""Flags in global memory, by which the CTAs of a cluster exchange tiles.

Flags in a workspace tensor are for all workers: that they are reached is argued elsewhere
(split_k_protocol.py). That argument needs that no iteration of the work loop waits, in whatever
way, for what comes after a flag of a later iteration, nor an arrival of all pieces for what comes
after the wait for them. So such a wait passes as late as can be.
"""

from __future__ import annotations

from typing import Any

from wsdsl.ir import barrier_ops as b
from wsdsl.prover.machine import Agent, Flag, Machine
from wsdsl.prover.program import BLOCKED, SEEN, Instruction
from wsdsl.prover.sync import classes


def _flag(m: Machine, a: Agent, i: Instruction) -> tuple[Flag, str]:
    op: Any = i.op
    key = (op.tensor.name, *(a.slots[i.extra[v.name]] for v in op.index))
    return m.flags.setdefault(key, Flag()), f"flag `{op.tensor.name}`"


def arrive_flag(m: Machine, a: Agent, i: Instruction) -> int:
    op = i.op
    assert isinstance(op, b.ArriveFlag)
    held, name = _flag(m, a, i)
    if op.wrap is not None:
        # Which of the arrivals would make it 0 again depends on their order.
        message = f"{name} goes round, and is in no workspace tensor: this is not understood"
        hint = "lower the flag by a negative amount, once all who wait have passed"
        raise m.fail("unknown", a, op, message, hint=hint)
    amount: Any = op.amount if op.by is None else a.slots[i.extra[op.by.name]]
    if not isinstance(amount, int):
        raise m.fail("unknown", a, op, f"by how much {name} changes is not known")
    know = a.know[0]
    if held.reset & ~know:
        raise m.fail(
            "phase",
            a,
            op,
            f"this may come before {name} is reset",
            hint="wait for whoever resets it, before the next use",
        )
    lowers = amount < 0
    if ((lowers or held.passed) and held.arrivals & ~know) or (lowers and held.passed & ~know):
        raise m.fail(
            "phase",
            a,
            op,
            f"this may change {name} under a wait for it, which then may "
            "not see the sum it waits for",
            hint="lower a flag once all have arrived, and all who wait have passed",
        )
    held.value += amount
    if held.value < 0:
        raise m.fail("phase", a, op, f"{name} falls below 0")
    (event,) = m.happened(a, (0,))
    if lowers:
        held.lowered |= event
    else:
        if op.release:
            held.gathered |= a.know[0]
        held.arrivals |= event
    if held.value == 0:
        held.reset, held.lowered = held.lowered, 0
        held.gathered = held.arrivals = held.passed = 0
    return SEEN


def wait_flag(m: Machine, a: Agent, i: Instruction) -> int:
    op = i.op
    assert isinstance(op, b.WaitFlag)
    if op.tensor.name in m.model.effects.lent:
        return SEEN if all(m.place(o) >= (m.turn(a), True) for o in m.agents) else BLOCKED
    held, name = _flag(m, a, i)
    count = a.slots[i.extra[op.count.name]]
    if not isinstance(count, int):
        raise m.fail("unknown", a, op, f"how often {name} is arrived at is not known")
    who = classes(i)
    for c in who:
        if held.reset & ~a.know[c]:
            raise m.fail(
                "phase",
                a,
                op,
                f"this may see {name} as it was before its reset",
                hint="wait for whoever resets it, before the next use",
            )
    if held.value < count:
        return BLOCKED
    if held.value > count:
        raise m.fail(
            "phase",
            a,
            op,
            f"{name} may be {held.value}, where {count} is waited for: "
            "which arrivals came first is open",
        )
    for c in who:
        a.know[c] |= held.gathered
    event = m.event()
    if i.elected:
        a.know[0] |= event
    else:
        a.did |= event
    held.passed |= event
    return SEEN
