"""Scalars and pipeline states: values that an agent computes by itself."""

from typing import Any

from wsdsl.ir.op import Op, attributes_of, operands, results_of
from wsdsl.ir.types import Fragment
from wsdsl.prover.machine.instructions import LOCAL, Instruction
from wsdsl.prover.machine.machine import Agent, Machine


def pure_value(m: Machine, a: Agent, i: Instruction) -> int:
    """Define a value about which is only known that equal operands give equal values; of fragments,
    which the machine does not have, not even that.
    """
    if any(isinstance(v.type, Fragment) for v in operands(i.op)):
        return fresh(m, a, i)
    held = i.extra
    used = (a.slots[held[v.name]] if v.name in held else ("value", v.name) for v in operands(i.op))
    a.slots[i.defines[0]] = (*named(i.op), *used)
    return LOCAL


def named(op: Op) -> tuple[Any, ...]:
    """The function of an op: its class, the types, every attribute."""
    types = (str(v.type) for v in (*results_of(op), *operands(op)))
    return (type(op).__name__, *types, *map(repr, attributes_of(op)))


def fresh(m: Machine, a: Agent, i: Instruction) -> int:
    """A value about which nothing is known."""
    a.slots[i.defines[0]] = ("index", m.next_iteration)
    m.next_iteration += 1
    return LOCAL


def nothing(m: Machine, a: Agent, i: Instruction) -> int:
    """Its result is looked up by name."""
    return LOCAL
