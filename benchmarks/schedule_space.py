"""Every schedule of a product of one size, as far as it is legal.

Which axis rides wgmma's M, modes, consumers, rows and columns of a tile, its depth, clusters with
and without multicast, clusters that share the contraction, split-K by every number of pieces in
both reductions, and stream-K. The depth of the ring, registers and the order of tiles are filled in
as the compiler does; `neighbours` has all others of one schedule.

A model gives the order, and says which are left out: that are predicted to take `within` times as
long as the best of all. It is off by 15 % for most kernels.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from wsdsl.diagnostics import WsdslError
from wsdsl.ir.ops import Contract
from wsdsl.lowering.assign_roles import assign_roles
from wsdsl.lowering.axes import axes_of, loop_variable
from wsdsl.lowering.cost_model.predict import floors, predict
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.footprint import axis_sizes, depth_steps
from wsdsl.lowering.passes.choose_schedule import completed
from wsdsl.lowering.pipeline import before_choice, scheduled_tile
from wsdsl.lowering.smem_allocations import fits_smem
from wsdsl.schedule import SWIZZLES, Schedule

if TYPE_CHECKING:
    from wsdsl.ir.op import Kernel

TEAMS: tuple[tuple[str, int], ...] = (
    *(("cooperative", n) for n in (1, 2, 3, 4)),
    *(("pingpong", n) for n in (2, 3)),
)
MOST_ROWS, MOST_COLUMNS, COLUMN_STEP = 256, 256, 8
LINES = (1, 2, 4)
"""Of SMEM, that a tile of the contraction takes."""
CLUSTERS = ((2, 1), (1, 2), (4, 1), (1, 4), (2, 2), (4, 2), (2, 4), (8, 1), (1, 8))
SHARING = (2, 4, 8)
MOST_SPLITS = 32
LEAST_STAGES = 2


class Sides(NamedTuple):
    """The kernel by one orientation, and its loop variables."""

    kernel: Kernel
    rows: str
    columns: str
    summed: str
    line: int
    """Elements of what is summed that fill a line of SMEM."""


class Point(NamedTuple):
    """A schedule that is not completed yet, and its predicted cycles."""

    cycles: float
    sides: Sides
    option: Schedule


def orientations(tile: Kernel) -> list[Sides]:
    """Both, as far as they can be laid out. ValueError for what is no single product."""
    kernel, found = before_choice(tile), list[Sides]()
    products = kernel.of(Contract)
    if len(products) != 1:
        raise ValueError(f"{tile.name} has {len(products)} products, expected one")
    given = kernel.schedule or Schedule()
    asked = [given, *(dataclasses.replace(given, mma_m=v) for v in _free(products[0]))]
    for schedule in asked:
        try:
            own = assign_roles(dataclasses.replace(kernel, schedule=schedule))
        except WsdslError:
            continue
        named = {role: [n for n, a in axes_of(own).items() if a.role == role] for role in ROLES}
        if any(len(names) != 1 for names in named.values()):
            raise ValueError(f"{tile.name} walks more than rows, columns and a contraction")
        (rows,), (columns,), (summed,) = (named[role] for role in ROLES)
        line = depth_steps(own)[summed][1]
        sides = Sides(own, *map(loop_variable, (rows, columns, summed)), line)
        if sides.rows not in [other.rows for other in found]:
            found.append(sides)
    return found


def _free(product: Contract) -> list[str]:
    return [loop_variable(axis) for side in product.free for axis in side]


ROLES: tuple[Any, ...] = ("rows", "columns", "")


def tiles(sides: Sides, size: int) -> Iterator[Schedule]:
    """Teams and tiles; `size`: of what is summed."""
    for (mode, consumers), lines in itertools.product(TEAMS, LINES):
        if lines > 1 and lines * sides.line > size:
            continue
        sharing = consumers if mode == "cooperative" else 1
        for rows in range(64 * sharing, MOST_ROWS + 1, 64 * sharing):
            for columns in range(COLUMN_STEP, MOST_COLUMNS + 1, COLUMN_STEP):
                tile = {sides.rows: rows, sides.columns: columns, sides.summed: lines * sides.line}
                named: dict[str, Any] = dict(mode=mode, consumers=consumers, tile=tile)
                yield dataclasses.replace(sides.kernel.schedule or Schedule(), **named)


def ways(sides: Sides, whole: Schedule, steps: int) -> Iterator[Schedule]:
    """To share out the work on tiles of so many steps."""

    def changed(**changes: Any) -> Schedule:
        return dataclasses.replace(whole, **changes)

    yield changed(scheduler="persistent")
    yield changed(scheduler="grid")
    for shape, multicast in itertools.product(CLUSTERS, (None, False)):
        named = dict(zip((sides.rows, sides.columns), shape, strict=True))
        cluster = {name: num for name, num in named.items() if num > 1}
        yield changed(cluster=cluster, multicast=multicast)
    for num in (n for n in SHARING if n <= steps):
        yield changed(cluster={sides.summed: num})
    yield changed(scheduler="stream_k")
    for splits in range(2, min(MOST_SPLITS, steps) + 1):
        for reduction in ("serial", "parallel"):
            yield changed(scheduler="split_k", splits=splits, reduction=reduction)


def points(tile: Kernel, sizes: Mapping[str, int], within: float = math.inf) -> list[Point]:
    """Those that SMEM may have room for, the best first by the model."""
    chosen, found = scheduled_tile(tile, sizes), list[Point]()
    assert chosen.schedule is not None
    own = axis_sizes(chosen, chosen.schedule)
    least = predict(Work.of(chosen, sizes), chosen.schedule, own).cycles
    for sides in orientations(tile):
        work = Work.of(sides.kernel, sizes)
        (summed,) = (a for a in axes_of(sides.kernel).values() if not a.role)
        size = work.size(summed.dim)
        for whole in tiles(sides, size):
            own = axis_sizes(sides.kernel, whole)
            is_slow = min(floors(work, whole, own)) > within * least
            if is_slow or not fits_smem(sides.kernel, whole, LEAST_STAGES, buffers=1):
                continue
            steps = -(-size // (whole.tile or {})[sides.summed])
            for option in ways(sides, whole, steps):
                if option.reduction == "parallel" and not _run_at_once(work, option, own):
                    continue
                cycles = predict(work, option, own).cycles
                least = min(least, cycles)
                if cycles <= within * least:
                    found.append(Point(cycles, sides, option))
    kept = [point for point in found if point.cycles <= within * least]
    return sorted(kept, key=lambda point: point.cycles)


def _run_at_once(work: Work, option: Schedule, tile: Mapping[str, int]) -> bool:
    return work.num_tiles(tile) * (option.splits or 1) <= work.target.num_sms


def legal(point: Point, sizes: Mapping[str, int]) -> Schedule | None:
    """The whole schedule, if the compiler takes it."""
    try:
        schedule, findings = completed(point.sides.kernel, point.option, sizes)
    except WsdslError:
        return None
    return None if findings else schedule


def neighbours(schedule: Schedule) -> Iterator[Schedule]:
    """Of a whole schedule all other depths, orders of tiles and ways to start the next kernel. The
    compiler refuses those that do not fit."""
    stages, rasters = schedule.stages or 1, (None, *_sides(schedule))
    for other in range(LEAST_STAGES, stages + 4):
        if other != stages:
            yield dataclasses.replace(schedule, stages=other)
    for raster, swizzle in itertools.product(rasters, SWIZZLES):
        if (raster, swizzle) != (schedule.raster, schedule.swizzle):
            yield dataclasses.replace(schedule, raster=raster, swizzle=swizzle)
    yield dataclasses.replace(schedule, launch_pdl=schedule.launch_pdl is False)


def _sides(schedule: Schedule) -> Sequence[str]:
    """The first loop's variable: tiles run along the last one else."""
    return tuple(schedule.tile or {})[:1]
