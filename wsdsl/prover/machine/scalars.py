"""Scalars and pipeline states: what an agent computes by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.op import Op, Value, attributes_of, operands, results_of
from wsdsl.ir.ops import LoadGlobal
from wsdsl.ir.types import Fragment, Tile
from wsdsl.prover.machine.control_flow import settled
from wsdsl.prover.machine.instructions import LOCAL, Instruction, Run
from wsdsl.prover.machine.machine import MADE, Agent, Machine, StageParity
from wsdsl.prover.machine.model import Model
from wsdsl.prover.machine.symbolic_terms import DATA, TESTS, Term, apply, of_data, varies


def constant(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.Constant = i.op
    # A float is another number in another type.
    number = op.value
    a.slots[i.defines[0]] = _named(op) if isinstance(number, float) else number
    return LOCAL


def dim_size(m: Machine, a: Agent, i: Instruction) -> int:
    a.slots[i.defines[0]] = m.model.dim(i.op.dim)
    return LOCAL


def map_scalars(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.Map = i.op
    held = i.extra
    args = tuple(a.slots[held[v.name]] if v.name in held else ("value", v.name) for v in op.args)
    if not _plain(op):
        made: Term = (*_named(op), *args)
    else:
        made = apply(op.fn, args)
        if type(made) is int:
            made = _wrapped(made, op.result)
    named = isinstance(made, tuple) and made[0] == "fixed"
    if op.fn in TESTS:
        made = settled(m, made, MADE) if m.each_iteration else made
    elif isinstance(made, tuple) and not named and not varies(made):
        # The same everywhere and always: a name will do, and is quicker to look at.
        names = m.model.names_of_terms
        name = ("fixed", len(names), *[DATA] * of_data(made))
        made = names.setdefault(made, name)
    a.slots[i.defines[0]] = made
    return LOCAL


def _wrapped(number: int, result: Value) -> int:
    """As the result's dtype has it."""
    kind = result.type
    if not isinstance(kind, Tile | Fragment):
        return number
    size = 1 << kind.dtype.bits
    number %= size
    return number - size if kind.dtype.kind == "int" and 2 * number >= size else number


def opaque(m: Machine, a: Agent, i: Instruction) -> int:
    """A value about which only is known that the same operands give the same."""
    held = i.extra
    used = (a.slots[held[v.name]] if v.name in held else ("value", v.name) for v in operands(i.op))
    a.slots[i.defines[0]] = (*_named(i.op), *used)
    return LOCAL


def _named(op: Op) -> tuple[Any, ...]:
    """All that says what an op makes of its operands: what it is, the types, every attribute."""
    types = (str(v.type) for v in (*results_of(op), *operands(op)))
    return (type(op).__name__, *types, *map(repr, attributes_of(op)))


def _plain(op: ops.Map) -> bool:
    """Is it arithmetic of integers, about which more is known? All but `fn` is as ever then. Not
    that of floats: of `lt` and `ge` neither may hold (NaN), and x - x need not be 0.
    """
    kind = op.args[-1].type
    integers = not (isinstance(kind, Tile | Fragment) and kind.dtype.is_float)
    usual = ops.Map(result=op.result, fn=op.fn, args=op.args, wraps=op.wraps)
    return integers and attributes_of(op) == attributes_of(usual)


def fresh(m: Machine, a: Agent, i: Instruction) -> int:
    """A value about which nothing is known."""
    a.slots[i.defines[0]] = ("index", m.next_iteration)
    m.next_iteration += 1
    return LOCAL


def load_global(m: Machine, a: Agent, i: Instruction) -> int:
    """Name the element of a tensor that the kernel does not write by its index."""
    op: LoadGlobal = i.op
    name = op.tensor.name
    if name in m.model.written or any(v.name not in i.extra for v in op.index):
        return fresh(m, a, i)
    a.slots[i.defines[0]] = ("load", name, *(a.slots[i.extra[v.name]] for v in op.index))
    return LOCAL


def nothing(m: Machine, a: Agent, i: Instruction) -> int:
    """Its result is looked up by name."""
    return LOCAL


def place(found: Callable[[Model, Agent], Term]) -> Run:
    """Where an agent runs, and among how many."""

    def run(m: Machine, a: Agent, i: Instruction) -> int:
        a.slots[i.defines[0]] = found(m.model, a)
        return LOCAL

    return run


def initial_state(m: Machine, a: Agent, i: Instruction) -> int:
    a.slots[i.defines[0]] = StageParity(0, i.op.parity)
    return LOCAL


def advance(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.Advance = i.op
    held: StageParity = a.slots[i.uses[0]]
    if held.stage >= op.num:
        told = f"stage {held.stage} is not one of the {op.num} stages of `advance`"
        raise a.fail("misuse", op, told, hint="use one `num` in `advance` and in the barriers")
    stage = held.stage + 1
    a.slots[i.defines[0]] = (
        StageParity(0, held.parity ^ 1) if stage == op.num else StageParity(stage, held.parity)
    )
    return LOCAL
