"""TMA stores, and the events of TMA copies."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from wsdsl.ir import ops
from wsdsl.ir.effects import accesses
from wsdsl.ir.hardware.swizzle import PACKED_SPAN
from wsdsl.ir.types import Shared
from wsdsl.prover.machine.instructions import LOCAL, Instruction
from wsdsl.prover.machine.machine import FIRST_LANES, NOTHING_STORED, Agent, Machine, union
from wsdsl.prover.memory.smem_accesses import item_in, item_of, read
from wsdsl.prover.ptx.expected_paths import Fill, of_warps
from wsdsl.prover.ptx.sync_trace_builder import ThreadSet, TraceBuilder


def tma_store(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.TmaStore = i.op
    array, item = item_in(m, a, i, op.shared, op.item)
    item_of(m, a, op, (array, item, 0, array.bytes))
    made: list[int] = []
    (access,) = accesses(i.effects, "smem")
    for place, (c, spans) in enumerate(zip(FIRST_LANES, access.spans, strict=True)):
        event = m.event()
        before = a.know[c] | union(stored[place] for stored in (*a.stores, a.open_stores))
        reader = ("store", a.index, c)
        for span in spans:
            where = array, item, span.start, span.start + span.size
            read(m, a, op, where, a.know[c], reader, event, before)
        made.append(event)
    a.open_stores = tuple([s | new for s, new in zip(a.open_stores, made, strict=True)])
    a.began_stores = True
    return LOCAL


def tma_store_commit(m: Machine, a: Agent, i: Instruction) -> int:
    a.stores.append(a.open_stores)
    a.open_stores, a.began_stores = NOTHING_STORED, False
    return LOCAL


def tma_store_wait(m: Machine, a: Agent, i: Instruction) -> int:
    op: ops.TmaStoreWait = i.op
    over = max(0, len(a.stores) - op.pending)
    for events in a.stores[:over]:
        for c, event in zip(FIRST_LANES, events, strict=True):
            a.know[c] |= event
    del a.stores[:over]
    return LOCAL


def trace_tma_load(t: TraceBuilder, op: ops.TmaLoad, _: ThreadSet) -> None:
    kind = "multicast " * (op.multicast is not None) + "TMA load"
    kind = "pair's " * (op.cta is not None) + kind
    # Lines of a block and bytes of a line are dimensions of their own.
    rank = f"{len(op.coordinates) + 2 * (t.definers[op.map].swizzle in PACKED_SPAN)}d"
    start, stride = t.item(op.shared, op.offset)
    fill = t.of_barrier(op, start=start, stride=stride, cta=t.of_ranks(op.multicast or op.cta))
    t.emit(op, kind, rank, fill=replace(fill, further=t.of_ranks(op.shift) or fill.further))


def trace_tma_store(t: TraceBuilder, op: ops.TmaStore, who: ThreadSet) -> None:
    kind = "TMA reduction" if op.accumulate else "TMA store"
    rank, start = f"{len(op.coordinates)}d", t.definers[op.shared].offset
    for warps, fill in _store_fills(op, t.definers[op.map].bytes, start, t.of_warpgroups(op.item)):
        threads = sum(who.one_in(128) << 32 * warp for warp in warps)
        t.emit(op, kind, rank, threads=threads, fill=fill)


def _store_fills(
    op: ops.TmaStore, box_bytes: int, start: int, items: Sequence[int | None]
) -> Iterator[tuple[list[int], Fill]]:
    """Yield which warps of a warpgroup copy a box, and from where; of panels that are copied in
    part not all warps have as many. `items`: that of each warpgroup.
    """
    size, boxes = op.shared.type_as(Shared).bytes, [*op.boxes(box_bytes)]
    of_warp = [[box.bytes.start for box in boxes if box.warp == warp] for warp in range(4)]
    for n in range(max(map(len, of_warp))):
        apart = [own[n] if n < len(own) else None for own in of_warp]
        of_each = [None if i is None or x is None else i * size + x for i in items for x in apart]
        warps = [warp for warp, x in enumerate(apart) if x is not None]
        yield warps, Fill(start=start, further=of_warps(of_each))


def trace_tma_store_commit(t: TraceBuilder, op: ops.TmaStoreCommit, who: ThreadSet) -> None:
    t.emit(op, "cp.async.bulk.commit_group", threads=who.one_in(32))


def trace_tma_store_wait(t: TraceBuilder, op: ops.TmaStoreWait, who: ThreadSet) -> None:
    kind = "cp.async.bulk.wait_group" + ".read" * op.read
    t.emit(op, kind, str(op.pending), threads=who.one_in(32))
