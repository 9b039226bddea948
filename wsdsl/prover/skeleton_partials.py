"""Where the words go that a `store_partials` sends."""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir.memory_ops import StorePartials
from wsdsl.ir.types import Fragment, Shared
from wsdsl.prover.skeleton_states import Fill, Places

WORD = 4


def partial_fills(op: StorePartials, places: Places, start: int) -> Iterator[Fill]:
    """One for each of a warp's words: to each CTA those of its rows; all warpgroups share
    columns.
    """
    assert op.barriers is not None
    items, groups = places.barriers[op.barriers], places.num_threads // 128
    kind = op.x.type
    assert isinstance(kind, Fragment) and isinstance(op.shared.type, Shared)
    lanes, part = kind.lanes, WORD * kind.rows
    rows = WORD * lanes.of_warp(kind.rows)
    own = [w % lanes.warps * part + w // lanes.warps * rows for w in range(4)]
    by_warp = tuple(x + g * lanes.warps * part for g in range(groups) for x in own)
    by_rank = tuple(part * lanes.warps * groups * rank for rank in range(op.ctas))
    for cta in range(op.ctas):
        for n in range(lanes.held(kind.rows)):
            yield Fill(
                items,
                op.state,
                start=start + WORD * n * lanes.rows,
                stride=op.shared.type.bytes,
                by_rank=by_rank,
                by_warp=by_warp,
                cta=(cta,) * places.ranks,
            )
