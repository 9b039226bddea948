"""Writes of scale factors to TMEM by threads, from stages in SMEM that TMA fills.

store_scale_factors(scales=%scales, state=%s, column=4, shared=%slots, shared_state=%r, offset=2048,
             line=16, first=%first, valid=%valid, rows=256)
tcgen05_wait_st()
tcgen05_fence()
mbarrier_arrive(barriers=%full, state=%s, each_warp=True)
"""

from collections.abc import Mapping, Sequence
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.hardware.block_scale_factors import WORD
from wsdsl.ir.hardware.scale_factor_atoms import BYTES
from wsdsl.ir.hardware.scale_factor_atoms import ROWS as ATOM_ROWS
from wsdsl.ir.types import Axis, SharedTile, Sizes, Value
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.placed_ring import PlacedRing
from wsdsl.lowering.tmem_pipelines import TensorRings

Place = tuple[PlacedRing, Value, int]
"""A field of a stage: its pipeline, the state of the stage, and the offset of the field."""


def store_scale_factors(
    b: Builder,
    op: ops.ScalesToSlot,
    read: Place,
    box: Sequence[int],
    written: Place,
    starts: Mapping[Value, Value],
    static: Sizes,
) -> None:
    """Those of a k-tile; a `box` of them lies in SMEM, and axes have `starts`."""
    axis, valid = op.summed.as_axis, None
    if op.across is not None:
        line, rows = BYTES * box[-3], op.across.as_axis.size
        whole = rows % ATOM_ROWS == 0
        first = b.integer(0) if whole else b.remainder(starts[op.across], ATOM_ROWS)
    else:
        line, rows = box[-1], max(box[:-1])
        start, size = starts[op.summed], static.get(axis.dim)
        first = b.remainder(b.quotient(start, op.block), line)
        if size is None or size % axis.size:
            left = b.map("sub", b.size(axis.dim, size), start, wish="left")
            valid = b.quotient_up(left, op.block, "valid")
    where = dict[str, Any](scales=written[0].shared, state=written[1], column=written[2])
    held = dict[str, Any](line=line, first=first, valid=valid, atoms=op.across is not None)
    words = axis.size // (WORD * op.block)
    b.add(ops.StoreScaleFactors(rows=rows, words=words, **where, **_read(read), **held, loc=op.loc))


def copy_scales(
    b: Builder,
    op: ops.CopyScales,
    read: Place,
    rings: TensorRings,
    axes: Mapping[str, Axis],
    cta_group: int,
) -> None:
    """Copy before the MMAs: there is one buffer, and the tensor cores execute in order."""
    rows, summed = (axes[x].size for x in op.value.type_as(SharedTile).axes)
    state = b.first_state()
    where = dict[str, Any](state=state, column=rings.copied[op.result], loc=op.loc)
    size = dict[str, Any](rows=rows, words=summed // (WORD * op.block), cta_group=cta_group)
    b.add(ops.Tcgen05Cp(scales=rings.scales, **where, **_read(read), **size))
    b.add(ops.TileInTensor(result=op.result, columns=rings.scales, **where))


def _read(place: Place) -> dict[str, Any]:
    """Where scales lie in SMEM."""
    return dict(shared=place[0].shared, shared_state=place[1], offset=place[2])
