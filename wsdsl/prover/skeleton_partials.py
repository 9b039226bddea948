"""Where the words go that a `store_partials` sends."""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir.memory_ops import StorePartials
from wsdsl.ir.types import Fragment, Shared
from wsdsl.prover.skeleton_states import Fill, Places

WORD = 4


def senders_apart(op: StorePartials) -> int:
    """One of so many lanes has what they reduced of a row."""
    assert isinstance(op.x.type, Fragment)
    return min(32, op.x.type.lanes.across)


def partial_fills(
    op: StorePartials, places: Places, start: int, first: int, groups: int
) -> Iterator[Fill]:
    """One for each of a warp's words: to each CTA those of its rows; all warpgroups share
    columns, or `each` has rows of its own. They are so many from the `first` of the CTA's on.
    """
    assert op.barriers is not None
    items, kind = places.barriers[op.barriers], op.x.type
    assert isinstance(kind, Fragment) and isinstance(op.shared.type, Shared)
    lanes, part = kind.lanes, WORD * kind.rows
    rows, across = WORD * lanes.of_warp(kind.rows), senders_apart(op)
    own = [w % lanes.warps * part + w // lanes.warps * rows for w in range(4)]
    apart = (op.each or lanes.warps) * part
    by_warp = (None,) * 4 * first + tuple(x + g * apart for g in range(groups) for x in own)
    together = lanes.warps if op.each else lanes.warps * groups
    by_rank = tuple(part * together * rank for rank in range(op.ctas))
    for cta in range(op.ctas):
        for n in range(lanes.held(kind.rows)):
            yield Fill(
                items,
                op.state,
                start=start + WORD * n * lanes.rows,
                stride=op.shared.type.bytes,
                by_rank=by_rank,
                by_warp=by_warp,
                by_lane=tuple(WORD * (lane // across) for lane in range(32)),
                cta=(cta,) * places.ranks,
            )
