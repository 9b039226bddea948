"""Loads of scalars from GMEM."""

from wsdsl.ir.ops import LoadGlobal
from wsdsl.prover.machine.instructions import LOCAL, Instruction
from wsdsl.prover.machine.machine import Agent, Machine
from wsdsl.prover.machine.scalars import fresh


def load_global(m: Machine, a: Agent, i: Instruction) -> int:
    """Name the element of a tensor that the kernel does not write by its index."""
    op: LoadGlobal = i.op
    name = op.tensor.name
    if name in m.model.written or any(v.name not in i.extra for v in op.index):
        return fresh(m, a, i)
    a.slots[i.defines[0]] = ("load", name, *(a.slots[i.extra[v.name]] for v in op.index))
    return LOCAL
