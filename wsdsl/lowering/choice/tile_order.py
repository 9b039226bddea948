"""The order in which output tiles are walked: CTAs that run at the same time should load the same.

Tiles run along the last loop variable, `swizzle` of the other's abreast, unless the schedule says
otherwise. A wave, a tile an SM, runs at the same time, and takes from memory the rows and columns
that it covers, which are fewest where it is nearly square. That is an H200's traffic of DRAM within
a few per cent (8192³, bf16 by 128 x 256: 1.49 GB with a swizzle of 8, 1.22 GB with 16), and what it
costs is power that the tensor cores could use: sustained runs are 1 to 2.5 % quicker. Tiles that
run along the first variable cause no more traffic of DRAM, but up to a quarter more of L2, since
then neighbours do not have the wide operand in common. So tiles of up to 128 columns that are not
wide run along it, where waves cover less so: 10000 x 768 x 16384 by 152 x 128, six abreast, 0.65 of
what they do by 16 abreast along n, which is as quick in bursts and 6 % slower sustained; 5000 x
1536 x 16384 the same and 5 %, 6000 x 2304 x 16384 by 208 x 128 0.77 and 4 %, 6000 x 576 x 7168 by
208 x 64 0.76 and 27 % (43 in bursts, since all that neighbours have in common is 64 columns). Of 25
such shapes none is slower by more than 0.6 %; two that would cover 1.36 times as much are, by 2 and
4 %. Of 45 shapes by larger tiles it made no difference.

Where there is one wave of narrow tiles, what counts is what crosses from L2 to the GPCs, whose SMs
share it. CTAs are dealt out GPC by GPC, so a run of 16 has one: it runs along the shorter side, so
that it needs little of the longer one's operand. On an H200 (bf16, us, along n and along m): 1024 x
384 x 4096 by 64 x 64 9.6 and 12.3, 1024 x 576 by 64 x 96 11.6 and 13.8, 2048 x 512 x 8192 by 64 x
128 28.0 and 32.2, but 512 x 2048 x 4096 21.3 and 16.0, 256 x 4096 x 4096 22.2 and 18.5. Squares of
4 x 4 are between the two. Clusters are dealt out to all GPCs in turn: those of one GPC follow at a
distance, so they run across the side along which a cluster lies (1024 x 768 x 4096, pairs along n:
13.9 along n, 13.2 along m; 1024 x 1152 by 128 x 80, pairs along m: 18.5 and 19.1). Of clusters
along the contraction no order is better: 1024 x 768 x 4096 by 128 x 96 12.7 to 12.9 in five.

Narrow tiles of several waves run along the side of which a tile has more, so that those next to
each other share the large operand: 4608 x 576 x 12288 by 160 x 64 101.9 us so and 147.7 across it,
2560 x 2560 x 1536 by 64 x 160 32.3 and 35.7.

Where the results are most of what memory moves, and the operand along their rows stays in L2, what
counts is that neighbours write neighbouring memory: tiles run along the rows, none abreast. bf16,
us, by the order that covers least and so: 8192 x 8192 x 128 47.6 and 42.0, with K = 512 104.5 and
98.2, 4096 x 16384 x 128 50.7 and 43.6, 32 x 4096 x 4096 x 128 381 and 366; but with K = 1024 4096 x
4096 (twice as much written as read) 48.6 and 50.1, 4096 x 16384 (33 MB along the rows) 177 and 201.

Pieces of tiles are dealt out by parts of the contraction, and within one in the order of few tiles
(256 x 2048 x 8192 by 64 x 128 in two: 25.5 along n, 23.3 along m; 1024 x 384 x 16384 by 128 x 96 in
four 25.5 and 25.9).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from wsdsl.ir.target import Target
from wsdsl.ir.tile_ops import Store
from wsdsl.ir.types import Axis
from wsdsl.lowering.axes import loop_variable
from wsdsl.lowering.cooperation import cluster_along, cluster_size
from wsdsl.lowering.model.loading import is_narrow
from wsdsl.lowering.model.workload import Work
from wsdsl.schedule import SWIZZLES, Schedule

MOST_WAVES = 64
"""So many tell enough."""
COVERED_LESS = 0.95
"""As much as along the last variable, at the most, for tiles to run along the first one, ..."""
COVERED_COLUMNS = 128
"""... which are of no more columns."""
WRITTEN = 5
"""Times as many bytes as are read: then the results are most of it."""
STAYS_BYTES = 13 << 20
"""An operand of no more stays in L2 while results pass: 12.6 MB of 8192 x 8192 x 768 do, and bring
nothing, 16.8 of 1024 x 32768 x 256 do not (5 % slower)."""


def with_tile_order(schedule: Schedule, work: Work, tile: Mapping[str, int]) -> Schedule:
    """`tile`: elements of a tile along every axis. raster="auto": along the side of fewer tiles."""
    places = [v.type for v in (loop.index for loop in work.nest[-2:]) if isinstance(v.type, Axis)]
    if len(places) < 2:
        return dataclasses.replace(schedule, swizzle=schedule.swizzle or 1)
    first = places[0]
    tiles = [-(-work.size(a.dim) // _extent(a, schedule, tile)) for a in places]
    asked = work.under(tile)
    at_once = work.sized and asked.tiles <= work.target.num_sms
    raster, swizzle = schedule.raster, schedule.swizzle
    if raster is None and swizzle is None and not at_once and not schedule.cuts_tiles:
        rows = _rows_written(work, places) if cluster_size(schedule) == 1 else None
        if rows is not None:
            raster = loop_variable(first.name) if rows == first else None
            return dataclasses.replace(schedule, raster=raster, swizzle=1)
    across, along = (
        _Side(n, tile[a.name], cluster_along(schedule, a.name))
        for n, a in zip(tiles, places, strict=True)
    )
    if raster == "auto":
        known = all(a.dim in work.sizes for a in places)
        raster = loop_variable(first.name) if known and tiles[0] < tiles[1] else None
    elif raster is None and swizzle is None and work.sized and not at_once:
        narrow = is_narrow(asked)
        crosses = not schedule.cuts_tiles and _across(work.target, across, along, narrow=narrow)
        raster = loop_variable(first.name) if crosses else None
    if swizzle is None:
        if raster in (first.name, loop_variable(first.name)):
            across, along = along, across
        if at_once and (is_narrow(asked) or schedule.cuts_tiles):
            swizzle = _in_one_wave(across, along)
        else:
            _, swizzle = _least(work.target, across, along)
    return dataclasses.replace(schedule, raster=raster, swizzle=swizzle)


def _rows_written(work: Work, places: list[Axis]) -> Axis | None:
    """The one of two axes that runs along the results' rows, if these are most of what is moved."""
    stores = [op for op, _ in work.inside if isinstance(op, Store)]
    along = {op.index[-1].type for op in stores}
    rows = next((axis for axis in places if {axis} == along), None)
    if rows is None or not work.sized:
        return None
    written = sum(work.num_bytes(v.type) for v in {op.tensor for op in stores})
    (other,) = (axis for axis in places if axis != rows)
    stays = 0
    for op in work.loads:
        if rows in op.axes and other not in op.axes:
            stays += math.prod(work.size(axis.dim) for axis in op.axes) * op.dtype.bytes
    read = work.tensor_bytes - written
    return rows if written >= WRITTEN * read and stays <= STAYS_BYTES else None


@dataclass(frozen=True)
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


def _extent(axis: Axis, schedule: Schedule, tile: Mapping[str, int]) -> int:
    """Of a cluster's tiles."""
    return max(1, tile[axis.name] * cluster_along(schedule, axis.name))


def _across(target: Target, first: _Side, last: _Side, *, narrow: bool) -> bool:
    """Whether several waves of tiles run along the first variable."""
    if narrow:
        return first.size > last.size
    if not last.size <= min(first.size, COVERED_COLUMNS) or first.cluster * last.cluster > 1:
        return False
    return _least(target, last, first)[0] < COVERED_LESS * _least(target, first, last)[0]


def _least(target: Target, across: _Side, along: _Side) -> tuple[int, int]:
    """The fewest rows and columns that waves cover, and by how many tiles abreast."""
    workers = target.cluster_room(across.cluster * along.cluster)
    return min((covered(across.shape, along.shape, workers, s), s) for s in SWIZZLES)


def _in_one_wave(across: _Side, along: _Side) -> int:
    """1 to go along, or as many as lie abreast, to go across first."""
    goes_along = along.length <= across.length
    if across.cluster != along.cluster:
        goes_along = along.cluster < across.cluster
    return 1 if goes_along else next((s for s in SWIZZLES if s >= across.num), SWIZZLES[-1])


def covered(across: tuple[int, int], along: tuple[int, int], workers: int, swizzle: int) -> int:
    """Rows and columns that waves of tiles cover, of all waves together; a side is the number of
    tiles and their size.
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
    return total
