"""Partial results: events of PTX."""

from collections.abc import Iterator
from itertools import product

from wsdsl.ir import ops
from wsdsl.ir.hardware.histogram_layout import WORD
from wsdsl.ir.types import Shared
from wsdsl.prover.ptx.expected_paths import Fill, Places
from wsdsl.prover.ptx.sync_trace_builder import ThreadSet, TraceBuilder


def trace_store_partials(t: TraceBuilder, op: ops.StorePartials, who: ThreadSet) -> None:
    if op.barriers is None:
        return
    start = t.definers[op.shared].offset + op.offset
    for lanes, fill in _partial_fills(op, t.places, start, who.first, who.num):
        threads = sum(who.one_in(32) << lane for lane in lanes)
        t.emit(op, "st.async", "4 bytes", threads=threads, fill=fill)


def _partial_fills(
    op: ops.StorePartials, places: Places, start: int, first: int, groups: int
) -> Iterator[tuple[tuple[int, ...], Fill]]:
    """Yield which lanes send which words: one for each of a thread's words. Lanes that share a row
    send to one CTA each.
    All warpgroups, from the `first` of the CTA on, share columns, or `each` has separate rows.
    """
    assert op.barriers is not None
    items, kind = places.barriers[op.barriers], op.x.as_fragment
    lanes, part = kind.lanes, WORD * kind.rows
    rows, across = WORD * lanes.of_warp(kind.rows), min(32, lanes.across)
    own = [w % lanes.warps * part + w // lanes.warps * rows for w in range(4)]
    apart = (op.each or lanes.warps) * part
    by_warp = [x + g * apart for g in range(groups) for x in own]
    part *= lanes.warps if op.each else lanes.warps * groups

    def further(tid: int, rank: int) -> int | None:
        return by_warp[tid // 32 - 4 * first] + part * rank + WORD * (tid % 32 // across)

    for begin, n in product(range(0, op.ctas, across), range(lanes.held(kind.rows))):
        yield (
            tuple(lane for lane in range(32) if begin + lane % across < op.ctas),
            Fill(
                items,
                op.state,
                start=start + WORD * n * lanes.rows,
                stride=op.shared.type_as(Shared).bytes,
                further=further,
                cta=lambda tid, _, begin=begin: begin + tid % across,
            ),
        )
