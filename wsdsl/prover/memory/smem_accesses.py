"""Accesses to SMEM: events that must be complete, and seen so, before the next one begins.

A write by threads is complete when they say so and others hear of it; a TMA load when the phase it
counts on completes; a wgmma's reads when a wgmma_wait retires it; a TMA store's when the storing
thread has waited for it. The async proxy must besides be shown, by a fence of the writers, what
threads wrote.
"""

from collections.abc import Callable, Iterable
from functools import reduce
from operator import and_
from typing import Any

from wsdsl.ir.effects import Access
from wsdsl.ir.op import Makers, Op, Value
from wsdsl.ir.verify.threads import threads_of
from wsdsl.prover.failure import Party
from wsdsl.prover.machine.instructions import Instruction
from wsdsl.prover.machine.machine import ELECTED, Agent, Machine, Span, StageParity
from wsdsl.prover.machine.model import Array
from wsdsl.prover.protocols.mbarriers import barrier_of, count_in_phase, settle, shown

EVERY = -1
"""The class of all threads of a warpgroup."""


def split(spans: tuple[Span, ...], borders: Iterable[int]) -> tuple[Span, ...]:
    """The same spans, with borders at the places given."""
    for at in borders:
        for place, held in enumerate(spans):
            if held.start < at < held.end:
                halves = held.part(held.start, at), held.part(at, held.end)
                spans = (*spans[:place], *halves, *spans[place + 1 :])
                break
    return spans


Bytes = tuple[Array, Any, int, int]
"""An array, the item, and where in it they begin and end."""
Change = Callable[[Span, str], Span]
"""Of a span of the item that has this name."""


def item_in(
    m: Machine, a: Agent, i: Instruction, of: Value | None, at: Value | None
) -> tuple[Array, Any]:
    """The array, and the number of the item that a pipeline state or an index selects."""
    assert of is not None
    item: Any = 0 if at is None else a.slots[i.extra[at.name]]
    return m.model.arrays[of.name], item.stage if type(item) is StageParity else item


def item_of(m: Machine, a: Agent, op: Op, where: Bytes) -> None:
    array, item, start, end = where
    if not isinstance(item, int):
        raise a.fail("unknown", op, f"the item of `{array.label}` is not known")
    if not 0 <= item < array.num:
        raise a.fail("misuse", op, f"item {item} of `{array.label}`, which has {array.num}")
    if start < 0 or end > array.bytes:
        told = f"bytes {start} to {end} of an item of `{array.label}`, which has {array.bytes}"
        raise a.fail("misuse", op, told)


def spans_of(m: Machine, cta: int, array: Array, item: int, *borders: int) -> tuple[Span, ...]:
    """An item's spans, cut where any access to arrays of its kind begins or ends."""
    known = m.model.borders.setdefault((array.label, array.bytes), set())
    held = m.memory.get((cta, array.index, item))
    if held is None:
        held = split((Span(0, array.bytes),), known)
    known.update(borders)
    return split(held, borders)


def _change(m: Machine, a: Agent, where: Bytes, cta: int, change: Change) -> None:
    """Replace the spans of bytes of an item, in the SMEM of `cta` if it is not negative."""
    array, item, start, end = where
    cta = a.cta if cta < 0 else cta
    what = f"item {item} of `{array.label}`" + (f" of CTA {cta}" if cta != a.cta else "")
    spans = spans_of(m, cta, array, item, start, end)
    changed = [change(s, what) if s.start < end and start < s.end else s for s in spans]
    m.memory[cta, array.index, item] = tuple(changed)


def write(
    m: Machine,
    a: Agent,
    op: Op,
    where: Bytes,
    know: int,
    made: tuple[int, int],
    asynchronous: bool = False,
    cta: int = -1,
) -> None:
    """Overwrite bytes of an item; the writers know `know`, `made` are the new write's events.
    `cta`: another one's."""

    def overwritten(held: Span, what: str) -> Span:
        for _, event, reader in held.reads:
            if event & ~know:
                told = f"this may overwrite {what} while it is still read"
                raise a.fail(
                    "race", op, told, reader, _release_hint(reader.op, m.model.kernel.definers)
                )
        needed = held.write | (held.shown if asynchronous else 0)
        if needed & ~know:
            proxy = not held.write & ~know
            raise a.fail(
                "proxy" if proxy else "race",
                op,
                f"this may overwrite {what} before an earlier write is complete",
                held.writer,
                "add a fence_async_proxy of the writing threads before their arrival"
                if proxy
                else "wait for a barrier on which that write counts, or its threads arrive",
            )
        party = Party(a.index, op)
        return Span(held.start, held.end, made[0], made[1], party, written=True)

    _change(m, a, where, cta, overwritten)


def _release_hint(op: Op, made: Makers) -> str:
    accesses = [e for e in op.effects(made) if isinstance(e, Access)]
    reads = [e for e in accesses if e.kind == "read"]
    if not reads or not reads[0].asynchronous:
        over = "fence_async_proxy, where TMA overwrites it"
    elif threads_of(op) == "one":
        over = "a tcgen05_commit"
    elif reads[0].space == "tmem":
        over = "tcgen05_wait_ld, then tcgen05_fence"
    elif any(e.space == "gmem" for e in accesses):
        over = "tma_store_wait, then sync_warp, or a named barrier if four warps wrote it"
    else:
        over = "wgmma_wait"
    return f"complete the reads ({over}), then arrive on a barrier that the writer awaits"


def read(
    m: Machine,
    a: Agent,
    op: Op,
    where: Bytes,
    know: int,
    reader: Any,
    event: int,
    before: int,
    asynchronous: bool = True,
    any_value: bool = False,
    cta: int = -1,
) -> None:
    """A read (by the async proxy, or by threads), complete when `event` has happened; a thread that
    hears of that has heard of the events `before` too. `reader` tells it from others that go on
    with it. With `any_value` it may be of unwritten bytes. `cta`: another one's."""

    def read_once(held: Span, what: str) -> Span:
        if not held.written and not any_value:
            told = f"no op has written {what}, which this reads"
            raise a.fail("race", op, told, hint="wait for the full barrier of the stage first")
        if held.write & ~know:
            told = f"this may read {what} before it is written"
            hint = "wait for the barrier on which that write counts, or its threads arrive"
            raise a.fail("race", op, told, held.writer, hint)
        if asynchronous and held.shown & ~know:
            told = f"this may not see the writes of threads to {what}"
            hint = "add a fence_async_proxy of the writing threads before their arrival"
            raise a.fail("proxy", op, told, held.writer, hint)
        reads = [r for r in held.reads if r[1] & ~(before | event)]
        return held.with_reads((*reads, (reader, event, Party(a.index, op))))

    _change(m, a, where, cta, read_once)


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join adjacent ranges, and drop empty ones."""
    found = list[tuple[int, int]]()
    for start, end in ranges:
        if found and found[-1][1] == start:
            found[-1] = found[-1][0], end
        elif start < end:
            found.append((start, end))
    return found


def known_to_each(a: Agent, who: tuple[int, ...]) -> int:
    return reduce(and_, [a.know[c] for c in who])


# Copies -------------------------------------------------------------------------------------------


def send(
    m: Machine,
    a: Agent,
    i: Instruction,
    where: Bytes,
    know: int,
    before: int,
    what: str,
    cta: int,
    who: tuple[int, ...] = ELECTED,
    told: int = 0,
    counted: int = -1,
) -> None:
    """Write in the SMEM of `cta` bytes that count on the op's barrier there, or in CTA `counted`.
    `who` writes: the elected thread (by the async proxy), or all. `before`: events that were over
    when the bytes were sent; `told`: events that the phase's waiters know in addition.
    """
    counted = cta if counted < 0 else counted
    held, barriers, stage = barrier_of(m, a, i, who, counted)
    event, by_threads = m.event(), who != ELECTED
    write(m, a, i.op, where, know, (event, m.event() if by_threads else 0), not by_threads, cta)
    name = shown(barriers, stage, m, counted)
    count_in_phase(m, a, i, held, name, know, f"the bytes of this {what} on")
    # Bytes land after they were sent: phases and waits complete then stay so.
    held.gathered |= event | told | before & (m.waits | m.phases)
    held.tx -= where[3] - where[2]
    settle(m, a, i.op, held, name)


def destinations(m: Machine, a: Agent, i: Instruction, multicast: Value | None) -> list[int]:
    """The CTAs that a mask says, or one's own."""
    if multicast is None:
        return [a.cta]
    mask = a.slots[i.extra[multicast.name]]
    if not isinstance(mask, int) or mask <= 0 or mask >> m.model.cluster:
        told = f"multicast mask {mask} exceeds the {m.model.cluster} CTAs of the cluster"
        raise a.fail("misuse", i.op, told)
    return [m.model.reach(a.cta, rank) for rank in range(m.model.cluster) if mask >> rank & 1]
