"""The tile scheduler's values of an iteration, as formulas over the kernel's own terms.

The formulas of `ir/tile_scheduler.py` are applied to sums, as lowering applies them to scalars. So
that a kernel's scalar is the scheduler's, at all sizes, is seen by comparing two sums. Equal sums
are equal modulo 2**32, which is how scalars count.
"""

from functools import reduce

from wsdsl.ir import ops
from wsdsl.ir.op import Value
from wsdsl.ir.tile_scheduler import Extents, Problem, Walk, tile_scheduler
from wsdsl.prover.machine.linear import Linear, Sums
from wsdsl.record import record


@record
class SchedulerTerms:
    """One iteration of the work loop from `start` to `stop` by `step`: elements [begin, end) of
    the contraction of the tile that has `slot`. Where all tiles are cut alike this is the `part`-th
    of `pieces`; if they are `abreast`, each goes to the contraction's end.
    """

    start: Linear
    stop: Linear
    step: Linear
    slot: Linear
    begin: Linear
    end: Linear
    part: Linear | None
    pieces: Linear | None
    abreast: bool


def scheduler_terms(grid: ops.LaunchGrid, sums: Sums, index: Value) -> SchedulerTerms:
    """`index` is the loop's."""
    ((dim, extent),) = grid.contraction
    worker, workers = map(sums.special, grid.worker)
    depth = sums.apply("max", count_items(grid.contraction, sums), Linear(1))
    problem = Problem(count_items(grid.tiles, sums), depth, worker, workers)
    scheduler = tile_scheduler(grid.scheduler, grid.splits, grid.together)
    walk: Walk[Linear] = scheduler.walk(sums, problem)
    piece = walk.piece(sums.of(index))
    slot = piece.tile
    if grid.cluster > 1:
        slot = slot.times(grid.cluster) + sums.special(ops.CtaRank)
    end = sums.apply("min", piece.end.times(extent), sums.size(dim))
    return SchedulerTerms(
        walk.start,
        walk.stop,
        walk.step,
        slot,
        piece.begin.times(extent),
        end,
        piece.part,
        walk.splits,
        piece.stride is not None,
    )


def count_items(extents: Extents, sums: Sums) -> Linear:
    """Of tiles along all dimensions."""
    counts = [
        sums.apply("floordiv", sums.size(dim) + Linear(extent - 1), Linear(extent))
        for dim, extent in extents
    ]
    return reduce(lambda x, y: sums.apply("mul", x, y), counts, Linear(1))
