"""Direct accesses to tensors that CTAs exchange: ordered by flags, or a race."""

from __future__ import annotations

from typing import Any

from wsdsl.ir import memory_ops as mem
from wsdsl.ir.op import Value
from wsdsl.prover.control import truth
from wsdsl.prover.errors import Party
from wsdsl.prover.machine import ALL, Agent, Machine, Span
from wsdsl.prover.program import LOCAL, Instruction
from wsdsl.prover.scalars import fresh


def load_global(m: Machine, a: Agent, i: Instruction) -> int:
    op = i.op
    assert isinstance(op, mem.LoadGlobal)
    name = op.tensor.name
    if name in m.model.effects.shared:
        _access(m, a, i, op.index, None)
        return fresh(m, a, i)
    if name in m.model.written or any(v.name not in i.extra for v in op.index):
        return fresh(m, a, i)
    a.slots[i.defines[0]] = ("load", name, *(a.slots[i.extra[v.name]] for v in op.index))
    return LOCAL


def store_global(m: Machine, a: Agent, i: Instruction) -> int:
    op = i.op
    assert isinstance(op, mem.StoreGlobal)
    if op.pred is not None and not truth(m, a.slots[i.extra[op.pred.name]]):
        return LOCAL
    if not op.accumulate:
        _access(m, a, i, op.index, op)
    return LOCAL


def copied(m: Machine, a: Agent, i: Instruction) -> int:
    raise m.fail(
        "unknown",
        a,
        i.op,
        "copies of a tensor that CTAs exchange by flags are not understood",
        hint="load_global and store_global are",
    )


def _access(
    m: Machine, a: Agent, i: Instruction, index: tuple[Value, ...], store: mem.StoreGlobal | None
) -> None:
    """Threads access what `index` says; equal terms are the same place, others another one."""
    op: Any = i.op
    place = tuple(a.slots[i.extra[v.name]] if v.name in i.extra else v.name for v in index)
    key = (op.tensor.name, place)
    held = m.global_memory.get(key)
    party = Party(a.index, op)
    over = 0
    for event in m.happened(a, ALL):
        over |= event
    if held is not None:
        (span,) = held
        for c in ALL:
            if _own(a, span.writer) or not span.write & ~a.know[c]:
                continue
            raise m.fail(
                "race",
                a,
                op,
                f"this may come before `{op.tensor.name}` is written there",
                span.writer,
                "the writer must arrive on a flag that this waits for",
            )
        if store is not None:
            for _, event, reader in span.reads:
                if reader.agent != a.index and any(event & ~a.know[c] for c in ALL):
                    raise m.fail(
                        "race",
                        a,
                        op,
                        f"this may overwrite `{op.tensor.name}` while it is read",
                        reader,
                        "the reader must arrive on a flag that this waits for",
                    )
            made = Span(0, 1, over, 0, party, written=True)
        else:
            reads = [r for r in span.reads if r[0] != a.index]
            made = span.with_reads((*reads, (a.index, over, party)))
    elif store is not None:
        made = Span(0, 1, over, 0, party, written=True)
    else:
        raise m.fail(
            "race",
            a,
            op,
            f"this reads `{op.tensor.name}` where nothing has written it",
            hint="wait for the flag of whoever writes it",
        )
    m.global_memory[key] = (made,)


def _own(a: Agent, writer: Party | None) -> bool:
    """The same threads hold the same elements of a fragment."""
    return writer is None or writer.agent == a.index
