"""The tile of kernels without products that walk rows which they do not hold: sums up to each
element, the largest of a row, parts of rows.

A warp has a row of its own, or several short ones, and a thread as many elements as leave room for
six CTAs on an SM: they hide each other's latency, where higher tiles would be fewer than the SMs.
"""

from __future__ import annotations

from collections.abc import Sequence

from wsdsl.ir.op import Kernel
from wsdsl.ir.tile_ops import ForTiles
from wsdsl.ir.types import THREADS
from wsdsl.lowering.axes import axes_of, loop_variable, output_nest, whole_axes
from wsdsl.lowering.cooperation import cluster_size
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.held_rows import USUAL
from wsdsl.lowering.lanes import ROWS, flat_axis, holds_vectors, reduces_rows, turned
from wsdsl.lowering.model.workload import Work
from wsdsl.schedule import Schedule, changed

WARPS = 4


def walked_row_option(
    kernel: Kernel, given: Schedule, work: Work, rows: Sequence[str], columns: Sequence[str]
) -> Schedule | None:
    """What is left open filled in, with the variables of the axes that are `rows` and `columns`;
    None if no rows are walked, or in another way.
    """
    apart = {loop.index for loop in output_nest(kernel)[0] if isinstance(loop, ForTiles)}
    walked = {op.index.as_axis for op in kernel.of(ForTiles) if op.index not in apart}
    dims = {a.dim for a in walked if loop_variable(a.name) in columns}
    if not dims or not rows or not work.sized or not holds_vectors(kernel):
        return None
    if reduces_rows(kernel) or flat_axis(kernel) is not None or turned(kernel):
        return None
    if given.mode == "pingpong" or cluster_size(given) > 1 or (given.consumers or 1) > 1:
        return None
    longest = max(work.size(dim) for dim in dims)
    height = max(WARPS, THREADS * USUAL // (1 << max(0, longest - 1).bit_length()))
    sizes, axes = axis_sizes(kernel, given), axes_of(kernel)
    for name in whole_axes(kernel):
        if axes[name].role == "columns" and sizes[name]:
            # All who share a row have a pair of its columns.
            height = max(height, 2 * THREADS // sizes[name])
    height = min(ROWS, height)
    tile = {**dict.fromkeys(rows, height), **dict.fromkeys(columns, THREADS * USUAL // height)}
    tile = {**tile, **(given.tile or {})}
    return changed(given, mode="cooperative", consumers=1, tile=tile)
