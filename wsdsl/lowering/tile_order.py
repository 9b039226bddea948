"""The order in which output tiles are walked: CTAs that run at the same time should load the same.

Tiles run along the last loop variable, `swizzle` of the other's abreast, unless the schedule says
otherwise. (Along the shorter side gains nothing on an H200: 4096 x 57344 x 8192, bf16 by 128 x 192,
is at 1.034 · 0.987 of cuBLAS so, and at 1.028 · 1.016 along the longer one.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from wsdsl.ir.types import Axis
from wsdsl.lowering.axes import loop_variable
from wsdsl.lowering.workload import Work
from wsdsl.schedule import Schedule

MAX_SWIZZLE = 8


def with_tile_order(schedule: Schedule, work: Work, tile: Mapping[str, int]) -> Schedule:
    """`tile`: elements of a tile along every axis. raster="auto" is along the side of fewer tiles,
    and a swizzle is no wider than there are tiles, where the sizes are known.
    """
    places = [v.type for v in (loop.index for loop in work.nest[-2:]) if isinstance(v.type, Axis)]
    raster = None if schedule.raster == "auto" else schedule.raster
    abreast = MAX_SWIZZLE
    if len(places) == 2 and all(axis.dim in work.sizes for axis in places):
        (first, rows), (_, columns) = ((a.name, _tiles(a, schedule, work, tile)) for a in places)
        if schedule.raster == "auto":
            other = rows < columns
        else:
            other = schedule.raster in (first, loop_variable(first))
        raster = loop_variable(first) if other and raster is None else raster
        across = columns if other else rows
        abreast = next(n for n in (1, 2, 4, MAX_SWIZZLE) if n >= min(across, MAX_SWIZZLE))
    return dataclasses.replace(schedule, raster=raster, swizzle=schedule.swizzle or abreast)


def _tiles(axis: Axis, schedule: Schedule, work: Work, tile: Mapping[str, int]) -> int:
    """Of clusters."""
    cluster = schedule.cluster or {}
    each = tile[axis.name] * cluster.get(loop_variable(axis.name), cluster.get(axis.name, 1))
    return -(-work.sizes[axis.dim] // max(1, each))
