"""Accesses of threads to SMEM, and copies whose bytes an mbarrier counts, by the effects of ops."""

from collections.abc import Iterator, Sequence
from typing import Any

from wsdsl.ir.effects import Access, Arrive, Effect, Span, accesses, reaches_cluster
from wsdsl.ir.op import Op, results_of
from wsdsl.ir.types import State
from wsdsl.prover.machine.control_flow import unknown
from wsdsl.prover.machine.instructions import LOCAL, SEEN, Instruction
from wsdsl.prover.machine.machine import ALL, ELECTED, WARPS, Agent, Machine
from wsdsl.prover.machine.model import Array
from wsdsl.prover.machine.scalars import fresh
from wsdsl.prover.memory.smem_accesses import (
    EVERY,
    destinations,
    item_in,
    item_of,
    joined,
    known_to_each,
    read,
    send,
    write,
)
from wsdsl.prover.protocols.mbarriers import cta_of_pair, cta_of_rank


def access_smem(m: Machine, a: Agent, i: Instruction) -> int:
    """Perform all accesses to SMEM of an op, and define its results. Effects of other kinds need a
    handler of the op.
    """
    counted = next((e for e in i.effects if isinstance(e, Arrive) and e.tx < 0), None)
    uncounted = counted is None and any(map(reaches_cluster, i.effects))
    if uncounted or not all(map(_is_performed, i.effects)):
        return unknown(m, a, i)
    for access in accesses(i.effects, "smem"):
        array, item = item_in(m, a, i, access.of, access.item)
        for who, spans in _by_warp(i, access):
            ranges = ranges_of(a, i, array, spans)
            for begin, end in ranges:
                item_of(m, a, i.op, (array, item, begin, end))
            if access.kind in ("read", "add"):
                for c in who:
                    read_by_threads(m, a, i.op, array, item, ranges, c)
            elif counted is not None:
                for begin, end in ranges:
                    _send(m, a, i, access, counted, (array, item, begin, end), who)
            else:
                known = known_to_each(a, who)
                events = _wrote(m, a, who, access)
                for begin, end in ranges:
                    write(m, a, i.op, (array, item, begin, end), known, events)
    for value in results_of(i.op):
        if value.name in m.model.needed:
            fresh(m, a, i)
        else:
            a.slots[i.defines[0]] = 0
    return LOCAL if counted is None else SEEN


def _is_performed(effect: Effect) -> bool:
    if isinstance(effect, Access):
        return effect.space in ("smem", "gmem")
    return isinstance(effect, Arrive) and effect.tx < 0


def _by_warp(i: Instruction, access: Access) -> Iterator[tuple[tuple[int, ...], tuple[Span, ...]]]:
    """Yield classes of threads, with the spans that they access together."""
    if len(access.spans) == len(WARPS):
        yield from zip(WARPS, access.spans, strict=True)
    else:
        yield (ELECTED if i.elected else ALL), access.spans[0]


def ranges_of(
    a: Agent, i: Instruction, array: Array, spans: Sequence[Span]
) -> list[tuple[int, int]]:
    """Return where spans begin and end in an item; adjacent ones are joined."""
    ranges = list[tuple[int, int]]()
    for span in spans:
        held = [a.rank if isinstance(v, str) else a.slots[i.extra[v.name]] for v, _ in span.terms]
        low, high = span.within or (0, array.bytes)
        if not all(isinstance(x, int) for x in held):
            if span.within is None:
                told = f"the offset in `{array.label}` is not known"
                raise a.fail("unknown", i.op, told)
            start, end = low, high
        else:
            start = span.start + (span.half or 0) * (array.bytes // 2)
            start += sum(x * by for x, (_, by) in zip(held, span.terms, strict=True))
            end = start + span.size
            if span.within is not None and not low <= start <= end <= high:
                told = f"bytes {start} to {end} exceed bytes {low} to {high} of an item"
                raise a.fail("misuse", i.op, f"{told} of `{array.label}`")
            if start % span.align:
                told = f"it starts at byte {start} of `{array.label}`"
                raise a.fail("misuse", i.op, f"{told}, not at a multiple of {span.align}")
        if span.limit is not None:
            start, end = min(start, span.limit), min(end, span.limit)
        ranges.append((start, end))
    return joined(ranges)


def _send(
    m: Machine,
    a: Agent,
    i: Instruction,
    access: Access,
    counted: Arrive,
    where: tuple[Array, Any, int, int],
    who: tuple[int, ...],
) -> None:
    """Start a copy to one or several CTAs."""
    if access.cta is not None:
        ctas = [cta_of_rank(m, a, i, access.cta)]
    elif access.ctas > 1:
        ctas = [m.model.reach(a.cta, rank) for rank in range(access.ctas)]
    else:
        ctas = destinations(m, a, i, access.multicast)
    for cta in ctas:
        if access.asynchronous:
            on = cta if counted.cta is None else cta_of_pair(m, a, i, counted.cta)
            send(m, a, i, where, a.know[0], a.know[0], "copy", cta, counted=on)
        else:
            # Waiters for the phase know all earlier events of all threads that may send.
            known = known_to_each(a, who)
            told = known if access.ctas > 1 else 0
            send(m, a, i, where, known, m.everything(a), "transfer", cta, ALL, told)


def _wrote(m: Machine, a: Agent, who: tuple[int, ...], access: Access) -> tuple[int, int]:
    """Return events of a write by threads: complete, and visible to the async proxy."""
    if who == ALL and access.item is not None and isinstance(access.item.type, State):
        # All threads arrive on the barrier of a pipeline stage, so one event represents all.
        complete, visible = m.event(), m.event()
        a.did |= complete
        m.unshown.append((a.index, EVERY, visible))
        return complete, visible
    complete = visible = 0
    for event in m.happened(a, who):
        complete |= event
    for c in who:
        event = m.event()
        visible |= event
        m.unshown.append((a.index, c, event))
    return complete, visible


def read_by_threads(
    m: Machine, a: Agent, op: Op, array: Array, item: int, ranges: list[tuple[int, int]], c: int
) -> None:
    """Read by threads of class `c`: each knows when it has, and of no other. For threads that write
    there by TMA it is complete at the next fence of these threads: nothing else orders reads of the
    generic proxy before writes of the async proxy.
    """
    event, before = m.event(), a.know[c]
    copied = array.name in m.model.copied
    if copied:
        for index, k, earlier in m.unshown:
            before |= earlier if (index, k) == (a.index, c) else 0
    for begin, end in ranges:
        where, reader = (array, item, begin, end), ("threads", a.index, c)
        read(m, a, op, where, a.know[c], reader, event, before, False)
    if copied:
        m.unshown.append((a.index, c, event))
    else:
        a.know[c] |= event
