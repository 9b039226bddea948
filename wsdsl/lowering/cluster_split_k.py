"""Finish a tile whose contraction the CTAs of a cluster share: each sums and stores a slice.

Before:
    finish_tile(sums=(%acc,), slot=%slot, begin=%begin, end=%end, contraction="K",
                reduction="cluster", part=%part, parts=%parts, sharing=2, args=(%sum,)) {
      store(tensor=%C, index=(%m, %n), value=%sum)
    }
After:
    %sums_ring = circular_buffer(depth=1, layouts=((f32[m, n_slice],),), senders=1)
      ...
      %n_slice: axis<n_slice of N by 64 columns> = axis_at(start=%slice)
      %sum: f32[m, n_slice] = add_in_cluster(sums=(%acc,), part=%part, sharing=2, ring=%sums_ring)
      store(tensor=%C, index=(%m, %n_slice), value=%sum)

Sums go from registers to the other CTAs' SMEM: nothing is written to GMEM, and nobody but the
cluster waits.
"""

from __future__ import annotations

from collections.abc import Mapping

from wsdsl.ir.op import Value
from wsdsl.ir.pipeline_ops import AddInCluster, CircularBuffer, FinishTile
from wsdsl.ir.types import Ring, Tile
from wsdsl.lowering.parallel_reduction import columns_of, narrowed, slice_at
from wsdsl.lowering.partials import Partials


def finish_in_cluster(
    partials: Partials, op: FinishTile, starts: Mapping[str, Value]
) -> CircularBuffer:
    """Returns the ring; `starts`: where the tile begins along each axis."""
    assert op.part is not None
    b, columns = partials.builder, columns_of(partials, op)
    width = columns.size // op.sharing
    offset = b.times(op.part, width, "offset")
    axis, wholes = slice_at(partials, op, width, offset, starts)
    layout = tuple(v.type for v in wholes if isinstance(v.type, Tile))
    ring = CircularBuffer(
        result=b.value("sums_ring", Ring()),
        depth=1,
        layouts=(layout,),
        consumers=partials.consumers,
        senders=op.sharing - 1,
        loc=op.loc,
    )
    b.add(
        AddInCluster(
            result=tuple(wholes),
            sums=op.sums,
            part=op.part,
            sharing=op.sharing,
            ring=ring.result,
            barrier=partials.barrier,
        )
    )
    b.ops += narrowed(op, columns.name, axis, wholes)
    return ring
