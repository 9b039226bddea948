"""Let the last tile of a dimension end with it, and overlap the one before, where that is sound.

Before:
    for_tiles(index=%m: axis<m of M by 128 rows>) {
      for_tiles(index=%n: axis<n of N by 208 columns>) {
        ...
        store(tensor=%C, index=(%m, %n), value=%acc)
After:
    for_tiles(index=%m: axis<m of M by 128 rows>, within=1) {
      for_tiles(index=%n: axis<n of N by 208 columns>, within=8) {
        ...
        store(tensor=%C, index=(%m, %n), value=%acc)

TMA takes about 2 cycles longer for each line of a box that lies beyond the tensor, and the CTA with
the last tile is the one that all wait for. What is computed twice has the same bits both times
(`ir/verify/overlapping_tiles.py`); so tiles that are cut stay as they are, where pieces, and with
them the order of the sums, differ from tile to tile, and so do those that more than two CTAs of a
cluster share, whose own sums come first. Tiles begin where TMA can: `within` is 16 bytes along a
contiguous dimension.

Why here: tile sizes are known, and one nest stands for all partitions.
"""

from wsdsl.ir.op import Kernel, Op, with_fields
from wsdsl.ir.ops import ForTiles
from wsdsl.ir.rewriter import rewrite
from wsdsl.ir.types import Axis
from wsdsl.ir.verify.overlapping_tiles import MOST_ALIKE, unit_of, why_apart
from wsdsl.lowering.footprint import sharing_ctas
from wsdsl.schedule import Schedule


def fit_last_tiles(kernel: Kernel) -> Kernel:
    schedule, static = kernel.schedule or Schedule(), dict(kernel.sizes)
    if schedule.cuts_tiles or sharing_ctas(kernel, schedule) > MOST_ALIKE:
        return kernel
    units = units_within(kernel)

    def fitted(op: Op) -> tuple[Op]:
        if not isinstance(op, ForTiles):
            return (op,)
        axis = op.index.as_axis
        unit, size = units.get(axis.name, 0), static.get(axis.dim)
        comes_out = size is not None and (size <= axis.size or size % axis.size == 0)
        if not unit or axis.size % unit or comes_out:
            return (op,)
        return (with_fields(op, within=unit),)

    return kernel.with_body(rewrite(kernel.body, fitted))


def units_within(kernel: Kernel) -> dict[str, int]:
    """The axes along which tiles may overlap, and of what their starts must be multiples there."""
    loops = [op for op in kernel.of(ForTiles) if not why_apart(kernel, op)]
    axes = ((loop, loop.index.type) for loop in loops)
    return {a.name: unit_of(kernel, loop.index) for loop, a in axes if isinstance(a, Axis)}


def reach_over(size: int, tile: int, unit: int) -> int:
    """Elements by which a dimension's last tile reaches over its end; `unit`: that of its start, or
    0 where tiles may not overlap.
    """
    return -size % (unit if unit and tile % unit == 0 and size > tile else tile)
