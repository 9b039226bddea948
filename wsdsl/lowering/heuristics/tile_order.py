"""The order in which output tiles are walked: CTAs that run at the same time should load the same.

Tiles run along the last loop variable, `swizzle` of the other's abreast, unless the schedule says
otherwise. A wave, a tile an SM, runs at the same time, and takes from memory the rows and columns
that it covers, which are fewest where it is nearly square; what that costs is power that the tensor
cores could use.

Where there is one wave of narrow tiles, what counts is what crosses from L2 to the GPCs, whose SMs
share it. CTAs are dealt out GPC by GPC, so a run of 16 has one: it runs along the shorter side, so
that it needs little of the longer one's operand. Clusters are dealt out to all GPCs in turn: those
of one GPC follow at a distance, so they run across the side along which a cluster lies.

Where the results are most of what memory moves, and the operand along their rows stays in L2, what
counts is that neighbours write neighbouring memory: tiles run along the rows, none abreast.

Pieces of tiles are dealt out by parts of the contraction, and within one in the order of few tiles.
"""

import math
from itertools import islice

from wsdsl.ir.hardware.target import Target
from wsdsl.ir.ops import Store
from wsdsl.ir.types import Axis, Sizes
from wsdsl.lowering.axes import loop_variable
from wsdsl.lowering.cooperation import cluster_along, cluster_size
from wsdsl.lowering.cost_model.speeds import at_launch, is_narrow
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.record import record
from wsdsl.schedule import SWIZZLES, Schedule, changed

MOST_WAVES = 64
"""So many tell enough."""
WRITTEN = 5
"""Times as many bytes as are read: then the results are most of it."""
STAYS_BYTES = 13 << 20
"""An operand of no more stays in L2 while results pass."""


def with_tile_order(schedule: Schedule, work: Work, tile: Sizes) -> Schedule:
    """`tile`: elements of a tile along every axis. raster="auto": along the side of fewer tiles."""
    places = [v.type for v in (loop.index for loop in work.nest[-2:]) if isinstance(v.type, Axis)]
    if len(places) < 2:
        return changed(schedule, swizzle=schedule.swizzle or 1)
    first = places[0]
    tiles = [-(-work.size(a.dim) // _extent(a, schedule, tile)) for a in places]
    asked = work.under(at_launch(work, schedule, tile))
    at_once = work.sized and asked.tiles <= work.target.num_sms
    raster, swizzle = schedule.raster, schedule.swizzle
    if raster is None and swizzle is None and not at_once and not schedule.cuts_tiles:
        rows = _rows_written(work, places) if cluster_size(schedule) == 1 else None
        if rows is not None:
            raster = loop_variable(first.name) if rows == first else None
            return changed(schedule, raster=raster, swizzle=1)
    across, along = (
        _Side(n, tile[a.name], cluster_along(schedule, a.name))
        for n, a in zip(tiles, places, strict=True)
    )
    if raster == "auto":
        known = all(a.dim in work.sizes for a in places)
        raster = loop_variable(first.name) if known and tiles[0] < tiles[1] else None
    if swizzle is None:
        if raster in (first.name, loop_variable(first.name)):
            across, along = along, across
        if at_once and (is_narrow(asked) or schedule.cuts_tiles):
            swizzle = _in_one_wave(across, along)
            if swizzle > 1 and (schedule.tile_n_variants or 1) > 1:
                swizzle = SWIZZLES[-1]  # Other launches have more of them.
        else:
            swizzle = _least(work.target, across, along)
            if (schedule.tile_n_variants or 1) > 1 and swizzle >= across.num:
                # All lie abreast, and other launches have more: a wave of these is square with its
                # root abreast, and reads the long side's operand once for as many.
                root = math.isqrt(work.target.num_sms)
                swizzle = max(swizzle, next(s for s in SWIZZLES if s >= root))
    return changed(schedule, raster=raster, swizzle=swizzle)


def _rows_written(work: Work, places: list[Axis]) -> Axis | None:
    """The one of two axes that runs along the results' rows, if these are most of what is moved."""
    stores = [op for op, _ in work.inside if isinstance(op, Store)]
    along = {op.index[-1].type for op in stores}
    rows = next((axis for axis in places if {axis} == along), None)
    if rows is None or not work.sized:
        return None
    written = sum(work.num_bytes(v.as_tensor) for v in {op.tensor for op in stores})
    (other,) = (axis for axis in places if axis != rows)
    stays = 0.0
    for op in work.loads:
        if rows in op.axes and other not in op.axes:
            stays += math.prod(work.size(axis.dim) for axis in op.axes) * op.dtype.bits / 8
    read = work.tensor_bytes - written
    return rows if written >= WRITTEN * read and stays <= STAYS_BYTES else None


@record
class _Side:
    """Of the output: how many clusters it is long, the size of a tile, and of a cluster."""

    num: int
    size: int
    cluster: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.num, self.size * self.cluster

    @property
    def length(self) -> int:
        return math.prod(self.shape)


def _extent(axis: Axis, schedule: Schedule, tile: Sizes) -> int:
    """Of a cluster's tiles."""
    return max(1, tile[axis.name] * cluster_along(schedule, axis.name))


def _least(target: Target, across: _Side, along: _Side) -> int:
    """Choose the swizzle by which waves cover the fewest rows and columns."""
    workers = target.cluster_room(across.cluster * along.cluster)
    least, by = math.inf, 0
    for swizzle in SWIZZLES:
        found = covered(across.shape, along.shape, workers, swizzle, least)
        if found < least:
            least, by = found, swizzle
    return by


def _in_one_wave(across: _Side, along: _Side) -> int:
    """1 to go along, or as many as lie abreast, to go across first."""
    goes_along = along.length <= across.length
    if across.cluster != along.cluster:
        goes_along = along.cluster < across.cluster
    return 1 if goes_along else next((s for s in SWIZZLES if s >= across.num), SWIZZLES[-1])


def covered(
    across: tuple[int, int],
    along: tuple[int, int],
    workers: int,
    swizzle: int,
    most: float = math.inf,
) -> int:
    """Rows and columns that waves of tiles cover, of all waves together, or `most` or more of them;
    a side is the number of tiles and their size.
    """
    (rows, height), (columns, width) = across, along
    total, group = 0, swizzle * columns
    for begin in islice(range(0, rows * columns, workers), MOST_WAVES):
        end = min(begin + workers, rows * columns)
        for g in range(begin // group, (end - 1) // group + 1):
            abreast = min(swizzle, rows - g * swizzle)
            low, high = max(begin - g * group, 0), min(end - g * group, abreast * columns)
            wide = math.ceil(high / abreast) - low // abreast
            total += wide * width + min(abreast, high - low) * height
        if total >= most:
            break
    return total
