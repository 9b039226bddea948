"""Check that the work units of split tiles cover the work exactly, and cannot deadlock.

The formulas of `wsdsl/ir/tile_scheduler.py` are checked before a kernel runs them, once per
problem: wrong ones would corrupt results or hang the GPU.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from wsdsl.diagnostics import LaunchError
from wsdsl.ir.integers import ON_INTEGERS
from wsdsl.ir.tile_scheduler import Problem, TileScheduler
from wsdsl.record import record

Array = npt.NDArray[np.int64]

MAX_I32 = 2**31 - 1
MAX_ROUNDS = 3
"""Rounds of whole tiles, or of the same work units per round, to check: all rounds are equal."""

FUNCTIONS = ON_INTEGERS | {"min": np.minimum, "max": np.maximum, "where": np.where}
GROWING = ("add", "sub", "mul")


class Arrays:
    """NumPy arrays, in i64, of numbers that i32 has room for."""

    def number(self, x: int, /) -> Array:
        return np.asarray(x, np.int64)

    def apply(self, fn: str, /, *args: Array) -> Array:
        made = np.asarray(FUNCTIONS[fn](*args))
        if fn in GROWING and made.size and max(made.max(), -made.min()) > MAX_I32:
            raise OverflowError
        return made


@record
class Pieces:
    """Work units of one or many problems: arrays of one element per work unit. `at` is the index of
    its problem in the problems' arrays.
    """

    at: Array
    iteration: Array
    tile: Array
    begin: Array
    end: Array
    stride: Array


def pieces_of(scheduler: TileScheduler, problem: Problem[Array]) -> Pieces:
    """List the work units of all problems. OverflowError where i32 overflows in the kernel."""
    walk = scheduler.walk(Arrays(), problem)
    start, stop, step = np.broadcast_arrays(walk.start, walk.stop, walk.step)
    iterations = np.maximum(0, -((start - stop) // step))
    at = np.repeat(np.arange(len(iterations)), iterations)
    iteration = np.arange(len(at)) - (np.cumsum(iterations) - iterations)[at]
    sizes = problem.tiles, problem.depth, problem.worker, problem.workers
    own = Problem(*(x[at] for x in sizes))
    piece = scheduler.walk(Arrays(), own).piece(start[at] + iteration * step[at])
    stride = np.int64(1) if piece.stride is None else piece.stride
    return Pieces(at, iteration, *np.broadcast_arrays(piece.tile, piece.begin, piece.end, stride))


def _problem(tiles: int, depth: int, workers: int) -> Problem[Array]:
    """For each of the workers."""
    each = np.arange(workers, dtype=np.int64)
    same = [np.full_like(each, n) for n in (tiles, depth, workers)]
    return Problem(same[0], same[1], each, same[2])


def check_work(
    name: str, scheduler: TileScheduler, tiles: int, depth: int, workers: int, slots: int
) -> None:
    """LaunchError unless `workers` that start in the order of their numbers do the whole work of
    kernel `name`, with `slots` for the tiles that are cut.
    """
    fault = _fault(scheduler, tiles, depth, workers, slots)
    if fault:
        problem = f"{tiles} tiles of {depth} steps for {workers} workers"
        hint = 'use scheduler="persistent" for this problem'
        raise LaunchError(f"WS0766 {name}: {fault} ({scheduler}, {problem})", hint=hint)


@lru_cache(maxsize=4096)
def _fault(scheduler: TileScheduler, tiles: int, depth: int, workers: int, slots: int) -> str:
    try:
        _last_iterations(scheduler, tiles, depth, workers)
        # The same problem with fewer rounds, which are a multiple of the workers' number.
        fewer = max(0, tiles // workers - MAX_ROUNDS) * workers
        pieces = pieces_of(scheduler, _problem(tiles - fewer, depth, workers))
    except OverflowError:
        return "the number of steps exceeds i32"
    if slots == tiles:
        slots -= fewer
    return next(_faults(pieces, tiles - fewer, depth, slots), "")


def _last_iterations(scheduler: TileScheduler, tiles: int, depth: int, workers: int) -> None:
    """OverflowError if numbers overflow; those of the last iterations are the largest."""
    walk = scheduler.walk(Arrays(), _problem(tiles, depth, workers))
    start, stop, step = np.broadcast_arrays(walk.start, walk.stop, walk.step)
    walk.piece(np.maximum(start, stop - 1 - (stop - 1 - start) % step))
    Arrays().apply("add", stop, step)


def _faults(pieces: Pieces, tiles: int, depth: int, slots: int) -> Iterator[str]:
    """Yield the faults of work units, alone and against the unit before each in its tile."""
    order = np.lexsort((pieces.begin, pieces.tile))
    worker, iteration = pieces.at[order], pieces.iteration[order]
    tile, begin, end = pieces.tile[order], pieces.begin[order], pieces.end[order]
    stride = pieces.stride[order]
    if np.any((tile < 0) | (tile >= tiles) | (begin < 0) | (begin >= end) | (end > depth)):
        yield "a work unit is empty, or exceeds the tiles"
    next_tile = np.diff(tile, prepend=-1, append=tiles)
    first, last = next_tile[:-1] > 0, next_tile[1:] > 0
    if np.any(next_tile > 1) or np.any(begin[first] != 0) or np.any(end[last] != depth):
        yield "no work unit covers the begin or end of a tile"
    behind, front = np.flatnonzero(~first), np.flatnonzero(~first) - 1
    # With a stride, that many units interleave in a tile; each begins a step after the one before.
    apart = stride > 1
    follows = np.where(apart[front], begin[front] + 1, end[front])
    odd = apart & ((end != depth) | (last & (begin != stride - 1)))
    if np.any(begin[behind] != follows) or np.any(stride[behind] != stride[front]) or np.any(odd):
        yield "work units of a tile overlap, or have gaps"
    if np.any(tile[behind] >= slots):
        yield "a split tile has no workspace"
    lower = worker[front] < worker[behind]
    earlier = (worker[front] == worker[behind]) & (iteration[front] < iteration[behind])
    if not np.all(lower | earlier):
        yield "a work unit depends on a later worker"
