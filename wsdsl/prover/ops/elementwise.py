"""Scalars: constants, sizes, functions of integers."""

from wsdsl.ir import ops
from wsdsl.ir.op import Value, attributes_of
from wsdsl.ir.types import Fragment, Tile
from wsdsl.prover.machine.control_flow import settled
from wsdsl.prover.machine.instructions import LOCAL, Instruction
from wsdsl.prover.machine.machine import MADE, Agent, Machine
from wsdsl.prover.machine.scalars import named
from wsdsl.prover.machine.symbolic_terms import DATA, TESTS, Term, apply, of_data, varies
from wsdsl.prover.ptx.register_values import FOLDED
from wsdsl.prover.ptx.sync_trace_builder import ThreadSet, TraceBuilder


def constant(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.Constant = i.op
    # A float is another number in another type.
    number = op.value
    a.slots[i.defines[0]] = named(op) if isinstance(number, float) else number
    return LOCAL


def dim_size(m: Machine, a: Agent, i: Instruction) -> int:
    a.slots[i.defines[0]] = m.model.dim(i.op.dim)
    return LOCAL


def map(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.Map = i.op
    held = i.extra
    args = tuple(a.slots[held[v.name]] if v.name in held else ("value", v.name) for v in op.args)
    if not _plain(op):
        made: Term = (*named(op), *args)
    else:
        made = apply(op.fn, args)
        if type(made) is int:
            made = _wrapped(made, op.result)
    is_named = isinstance(made, tuple) and made[0] == "fixed"
    if op.fn in TESTS:
        made = settled(m, made, MADE) if m.each_iteration else made
    elif isinstance(made, tuple) and not is_named and not varies(made):
        # The same everywhere and always: a name will do, and is faster to compare.
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


def _plain(op: ops.Map) -> bool:
    """Is it arithmetic of integers, about which more is known? All but `fn` is as ever then. Not
    that of floats: of `lt` and `ge` neither may hold (NaN), and x - x need not be 0.
    """
    kind = op.args[-1].type
    integers = not (isinstance(kind, Tile | Fragment) and kind.dtype.is_float)
    usual = ops.Map(result=op.result, fn=op.fn, args=op.args, wraps=op.wraps)
    return integers and attributes_of(op) == attributes_of(usual)


def trace_constant(t: TraceBuilder, op: ops.Constant, _: ThreadSet) -> None:
    t.known[op.result] = op.value


def trace_map(t: TraceBuilder, op: ops.Map, _: ThreadSet) -> None:
    if op.fn not in FOLDED:
        return
    for held in (t.by_warpgroup, t.by_rank):
        if any(x in held for x in op.args):
            _fold_by(t, held, op)
            return
    args = [t.known.get(v) for v in op.args]
    if None not in args and (args[-1] or op.fn not in ("floordiv", "mod")):
        t.known[op.result] = FOLDED[op.fn](*args)


def _fold_by(t: TraceBuilder, held: dict[Value, tuple[int, ...]], op: ops.Map) -> None:
    num = len(next(held[x] for x in op.args if x in held))
    each = [held.get(x) or (t.known.get(x),) * num for x in op.args]
    if None in sum(each, ()):
        return
    if op.fn not in ("floordiv", "mod") or 0 not in each[1]:
        found = (FOLDED[op.fn](*x) for x in zip(*each, strict=True))
        held[op.result] = tuple(int(x) for x in found)
