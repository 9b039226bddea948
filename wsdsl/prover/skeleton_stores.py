"""The places in SMEM that TMA stores read, warp by warp."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wsdsl.ir.copy_rules import boxes_of_warps
from wsdsl.ir.memory_ops import TmaStore
from wsdsl.ir.types import Shared
from wsdsl.prover.skeleton_states import Fill


def store_fills(
    op: TmaStore, box_bytes: int, start: int, items: Sequence[int | None]
) -> Iterator[tuple[list[int], Fill]]:
    """Which warps of a warpgroup copy a box, and from where, one after the other; of panels that
    are copied in part not all warps have as many. `items`: that of each warpgroup.
    """
    assert isinstance(op.shared.type, Shared)
    size, boxes = op.shared.type.bytes, [*boxes_of_warps(op, box_bytes)]
    of_warp = [[held.bytes.start for held in boxes if held.warp == warp] for warp in range(4)]
    for n in range(max(map(len, of_warp))):
        apart = [own[n] if n < len(own) else None for own in of_warp]
        by_warp = tuple(
            None if i is None or x is None else i * size + x for i in items for x in apart
        )
        warps = [warp for warp, x in enumerate(apart) if x is not None]
        yield warps, Fill(start=start, by_warp=by_warp)
