"""wgmma: operands in SMEM or registers, accumulators, groups and their retirement."""

from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN
from wsdsl.ir.hardware.wgmma_shapes import PTX_NAMES, ROWS, k_step, may_be_mn_major
from wsdsl.ir.op import Op, Value, results_of
from wsdsl.ir.ops import Tcgen05Mma
from wsdsl.ir.types import DTYPES, Accumulator, Fragment
from wsdsl.prover.failure import Failure
from wsdsl.prover.machine.control_flow import truth
from wsdsl.prover.machine.instructions import LOCAL, Instruction
from wsdsl.prover.machine.machine import ALL, Agent, Group, Machine, Registers, union
from wsdsl.prover.machine.model import Array
from wsdsl.prover.memory.smem_accesses import item_in, joined, known_to_each, read
from wsdsl.prover.ptx.operand_events import operand_event
from wsdsl.prover.ptx.sync_trace_builder import ThreadSet, TraceBuilder
from wsdsl.record import record

UNWRITTEN = "unwritten"
"""Accumulators that no MMA has written."""


@record
class Descriptor:
    """Where an operand lies."""

    array: Array
    item: int
    start: int
    op: ops.SmemDescriptor

    @property
    def layout(self) -> tuple[Any, ...]:
        op = self.op
        return op.dtype, op.rows, op.columns, op.offset, op.swizzle, op.k_major, op.first


def smem_descriptor(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.SmemDescriptor = i.op
    array, item = item_in(m, a, i, op.shared, op.state)
    start = a.slots[i.extra[op.start.name]] if op.start is not None else 0
    if not isinstance(start, int):
        told = f"the start of this operand in its tile of `{array.label}` is not known"
        hint = "start it at a constant, or at a multiple of warpgroup_index()"
        raise a.fail("unknown", op, told, hint=hint)
    a.slots[i.defines[0]] = Descriptor(array, item, start, op)
    return LOCAL


def _new_registers(m: Machine, a: Agent, i: Instruction, written: bool) -> int:
    m.next_registers += 1
    number = m.next_registers
    a.slots[i.defines[0]] = Registers(number)
    a.unfenced |= {number}
    if not written:
        a.unwritten |= {number}
    return LOCAL


def empty_accumulator(m: Machine, a: Agent, i: Instruction) -> int:
    return _new_registers(m, a, i, written=False)


def as_accumulator(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.AsAccumulator = i.op
    return _new_registers(m, a, i, written=not _is_unwritten(a, i, op.x))


def _is_unwritten(a: Agent, i: Instruction, sum: Value) -> bool:
    return sum.name in i.extra and a.slots[i.extra[sum.name]] == UNWRITTEN


def _taken(m: Machine, a: Agent, i: Instruction, value: Value) -> Registers:
    """The accumulator's registers, for which no earlier value stands any more."""
    held: Registers | None = a.slots[i.extra[value.name]]
    if held is None:
        told = f"a later op has overwritten the registers of {value}"
        raise a.fail("wgmma", i.op, told, hint="name the result of the last wgmma on them")
    a.slots = [None if type(x) is Registers and x == held else x for x in a.slots]
    return held


def wgmma_fence(m: Machine, a: Agent, i: Instruction) -> int:
    a.unfenced = frozenset()
    return LOCAL


def wgmma_mma_async(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.WgmmaMmaAsync = i.op
    accumulates = truth(m, a.slots[i.extra[op.accumulate.name]])
    registers = _taken(m, a, i, op.acc)
    if registers.number in a.unfenced:
        told = "no wgmma_fence follows the last use of the registers of the accumulator"
        raise a.fail("wgmma", op, told, hint="add a wgmma_fence before the first wgmma")
    if accumulates and registers.number in a.unwritten:
        told = "no op has written the accumulator"
        raise a.fail("wgmma", op, told, hint="set `accumulate` to false for the first MMA")
    event = m.event()
    know = known_to_each(a, ALL)
    for value, extent in ((op.a, ROWS), (op.b, op.num_columns)):
        held: Any = a.slots[i.extra[value.name]] if value.name in i.extra else None
        if isinstance(held, Descriptor):
            read_operand(m, a, op, held, extent, op.dtype, know, event)
        else:
            name = m.model.carried.get(value.name, value.name)
            a.open.fragments = (*a.open.fragments, (name, op))
    a.unwritten -= {registers.number}
    a.open.passed |= m.everything(a) & m.waits
    a.open.events |= event
    a.open.registers = (*a.open.registers, registers.number)
    a.open.op = op
    a.slots[i.defines[0]] = registers
    return LOCAL


def read_operand(
    m: Machine,
    a: Agent,
    product: ops.WgmmaMmaAsync | Tcgen05Mma,
    held: Descriptor,
    extent: int,
    dtype: str,
    know: int,
    event: int,
    cta: int = -1,
) -> None:
    """`cta`: in whose SMEM, if in another's."""
    op, kind, start = held.op, DTYPES[dtype], held.start
    along = op.rows if op.k_major else op.columns
    if start < 0 or start + extent > along:
        raise a.fail(
            "misuse", product, f"elements {start} to {start + extent} exceed an operand of {along}"
        )
    if start % (granule := 8 if op.k_major else kind.count(SWIZZLE_SPAN[op.swizzle])):
        told = f"an operand starts at element {start}, not at a multiple of {granule}"
        raise a.fail("misuse", product, told)
    # Groups retire in the order in which they were committed.
    before = know | union(group.events for group in (*a.groups, a.open))
    spans = op.spans(extent, kind, product.k)
    starts = [span.start + sum(start * by for _, by in span.terms) for span in spans]
    for begin, end in joined((x, x + span.size) for x, span in zip(starts, spans, strict=True)):
        if end > held.array.bytes:
            raise a.fail(
                "misuse",
                product,
                f"bytes {begin} to {end} exceed {held.array.bytes} of `{held.array.label}`",
            )
        reader = ("wgmma", a.index)
        where = held.array, held.item, begin, end
        read(m, a, product, where, know, reader, event, before, cta=cta)


def wgmma_commit(m: Machine, a: Agent, i: Instruction) -> int:
    a.groups.append(a.open)
    a.open = Group()
    return LOCAL


def wgmma_wait(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.WgmmaWait = i.op
    if a.open.op is not None:
        told = "a wgmma is not committed, so this wait does not cover it"
        raise a.fail("wgmma", op, told, hint="add a wgmma_commit before the wgmma_wait")
    over = max(0, len(a.groups) - op.pending)
    kept = {m.model.carried.get(v.name, v.name) for v in op.fragments}
    for group in a.groups[:over]:
        for name, product in group.fragments:
            if name not in kept:
                told = f"the registers of %{name} may be overwritten while this reads them"
                hint = "name it in the `fragments` of the wgmma_wait"
                raise a.fail("wgmma", product, told, hint=hint)
        # All warps take part in a wgmma: when it completes, all have reached its start.
        for c in ALL:
            a.know[c] |= group.events | group.passed
    del a.groups[:over]
    busy = {number for group in a.groups for number in group.registers}
    for value, result in zip(op.accumulators, i.defines, strict=True):
        registers = _taken(m, a, i, value)
        if registers.number in busy:
            told = f"{value} is incomplete: the wait leaves {op.pending} groups in flight"
            raise a.fail("wgmma", op, told, hint="wait with a smaller `pending`")
        a.slots[result] = UNWRITTEN if registers.number in a.unwritten else 0
    return waited_for(m, a, i)


def waited_for(m: Machine, a: Agent, i: Instruction) -> int:
    """Sums that nothing has written may be waited for, but not used."""
    for value, slot in zip(results_of(i.op), i.defines, strict=True):
        if a.slots[slot] == UNWRITTEN and value.name in m.model.used:
            raise _unwritten(m, a, i.op, value)
    return LOCAL


def _unwritten(m: Machine, a: Agent, op: Op, value: Value) -> Failure:
    told = f"no MMA may have written all of {value}, which this uses"
    hint = "read accumulators by `zero_unless` where no MMA may run"
    return a.fail("unwritten", op, told, hint=hint)


def zero_unless(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.ZeroUnless = i.op
    if _is_unwritten(a, i, op.x) and truth(m, a.slots[i.extra[op.cond.name]]):
        raise _unwritten(m, a, op, op.x)
    return LOCAL


def trace_wgmma_mma_async(t: TraceBuilder, op: ops.WgmmaMmaAsync, _: ThreadSet) -> None:
    known = t.known.get(op.accumulate)
    if known is False and not isinstance(t.definers.get(op.acc), ops.EmptyAccumulator):
        known = None  # It takes over registers, by a flag that no pass can fold.
    for step in range(op.k // k_step(DTYPES[op.dtype])):
        t.emit(op, "wgmma.mma_async", _shape_of(op, step, known))
        for x in (op.a, op.b):
            if not isinstance(x.type, Fragment):
                operand_event(t, op, x, step)


def _shape_of(op: ops.WgmmaMmaAsync, step: int, known: float | None) -> str:
    """Return the shape of an instruction; `known`: whether the first one accumulates."""
    flag = "1" if step else "p" if known is None else str(int(known))
    a, b = (DTYPES[name] for name in op.dtypes)
    total = op.acc.type_as(Accumulator).dtype.name
    total = {"i32": "s32"}.get(total, total)
    names = f"{total}.{PTX_NAMES[a.name]}.{PTX_NAMES[b.name]}"
    shape = f"m64n{op.num_columns}k{k_step(a)}.{names}"
    registers, rest = isinstance(op.a.type, Fragment), [] if a.is_integer else [1, 1]
    if may_be_mn_major(a):
        majors = [op.a_k_major] * (not registers) + [op.b_k_major]
        rest += [int(not k_major) for k_major in majors]
    return ", ".join([f"{shape} {'{a}' if registers else 'a'}", "b", flag, *map(str, rest)])


def trace_wgmma_wait(t: TraceBuilder, op: ops.WgmmaWait, _: ThreadSet) -> None:
    t.emit(op, "wgmma.wait_group", str(op.pending))
