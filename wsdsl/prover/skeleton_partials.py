"""Where the words go that a `store_partials` sends."""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir.memory_ops import StorePartials
from wsdsl.ir.types import Fragment, Shared
from wsdsl.prover.skeleton_states import Fill, Places

WORD = 4


def partial_fills(
    op: StorePartials, places: Places, start: int, first: int, groups: int
) -> Iterator[tuple[tuple[int, ...], Fill]]:
    """Which lanes send, and what: one for each of a thread's words. Lanes that share a row send to
    one CTA each. All warpgroups share columns, or `each` has rows of its own; they are so many from
    the `first` of the CTA's on.
    """
    assert op.barriers is not None
    items, kind = places.barriers[op.barriers], op.x.type
    assert isinstance(kind, Fragment) and isinstance(op.shared.type, Shared)
    lanes, part = kind.lanes, WORD * kind.rows
    rows, across = WORD * lanes.of_warp(kind.rows), min(32, lanes.across)
    own = [w % lanes.warps * part + w // lanes.warps * rows for w in range(4)]
    apart = (op.each or lanes.warps) * part
    by_warp = (None,) * 4 * first + tuple(x + g * apart for g in range(groups) for x in own)
    together = lanes.warps if op.each else lanes.warps * groups
    by_rank = tuple(part * together * rank for rank in range(op.ctas))
    for begin in range(0, op.ctas, across):
        senders = tuple(lane for lane in range(32) if begin + lane % across < op.ctas)
        for n in range(lanes.held(kind.rows)):
            yield (
                senders,
                Fill(
                    items,
                    op.state,
                    start=start + WORD * n * lanes.rows,
                    stride=op.shared.type.bytes,
                    by_rank=by_rank,
                    by_warp=by_warp,
                    by_lane=tuple(WORD * (lane // across) for lane in range(32)),
                    cta_by_lane=tuple(begin + lane % across for lane in range(32)),
                ),
            )
