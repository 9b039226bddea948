"""The order in which output tiles are walked: CTAs that run at the same time should load the same.

Tiles run along the last loop variable, `swizzle` of the other's abreast, unless the schedule says
otherwise. A wave, a tile an SM, runs at the same time, and takes from memory the rows and columns
that it covers, which are fewest where it is nearly square. That is an H200's traffic of DRAM within
a few per cent (8192³, bf16 by 128 x 256: 1.49 GB with a swizzle of 8, 1.22 GB with 16), and what it
costs is power that the tensor cores could use: sustained runs are 1 to 2.5 % quicker. Tiles that
run along the first variable cause no more traffic of DRAM, but up to a quarter more of L2, since
then neighbours do not have the wide operand in common.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from itertools import islice

from wsdsl.ir.types import Axis
from wsdsl.lowering.axes import loop_variable
from wsdsl.lowering.model.predict import NUM_SMS, cluster_size
from wsdsl.lowering.model.workload import Work
from wsdsl.schedule import SWIZZLES, Schedule

MOST_WAVES = 64
"""So many tell enough."""


def with_tile_order(schedule: Schedule, work: Work, tile: Mapping[str, int]) -> Schedule:
    """`tile`: elements of a tile along every axis. raster="auto": along the side of fewer tiles."""
    places = [v.type for v in (loop.index for loop in work.nest[-2:]) if isinstance(v.type, Axis)]
    if len(places) < 2:
        return dataclasses.replace(schedule, swizzle=schedule.swizzle or 1)
    first = places[0]
    tiles = [-(-work.size(a.dim) // _extent(a, schedule, tile)) for a in places]
    raster = schedule.raster
    if raster == "auto":
        known = all(a.dim in work.sizes for a in places)
        raster = loop_variable(first.name) if known and tiles[0] < tiles[1] else None
    swizzle = schedule.swizzle
    if swizzle is None:
        sides = [(n, _extent(a, schedule, tile)) for n, a in zip(tiles, places, strict=True)]
        across, along = sides
        if raster in (first.name, loop_variable(first.name)):
            across, along = along, across
        workers = NUM_SMS // cluster_size(schedule)
        swizzle = min(SWIZZLES, key=lambda s: covered(across, along, workers, s))
    return dataclasses.replace(schedule, raster=raster, swizzle=swizzle)


def _extent(axis: Axis, schedule: Schedule, tile: Mapping[str, int]) -> int:
    """Of a cluster's tiles."""
    cluster = schedule.cluster or {}
    each = cluster.get(loop_variable(axis.name), cluster.get(axis.name, 1))
    return max(1, tile[axis.name] * each)


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
