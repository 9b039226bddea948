"""Sizes and numbers of workers at which a kernel's scalars are compared with its tile scheduler.

All workers of all samples are looked at together, as arrays.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from wsdsl.ir.barrier_ops import LaunchGrid
from wsdsl.ir.op import Kernel
from wsdsl.ir.tile_scheduler import Piece, Problem, Walk, count_work, tile_scheduler

NUM_SAMPLES = 40
MAX_TURNS = 12
Array = Any


@dataclass(frozen=True)
class Samples:
    """One entry for each worker of each sample: a CTA of a cluster, the sizes, what it has to do.

    `pieces` are those of each tile, where all are cut alike; `size` is what the contraction is cut
    by, `length` all of it.
    """

    sizes: dict[str, Array]
    worker: Array
    workers: Array
    rank: Array
    cluster: int
    splits: int
    pieces: Array
    walk: Walk[Array]
    size: int
    length: Array

    def elements(self, at: Array) -> Piece[Array]:
        """What the scheduler says of a turn, in elements of the contraction."""
        piece = self.walk.piece(at)
        begin, end = piece.begin * self.size, np.minimum(piece.end * self.size, self.length)
        return Piece(piece.tile, begin, end, piece.part)

    def told(self, at: int) -> str:
        sizes = ", ".join(f"{dim} = {values[at]}" for dim, values in self.sizes.items())
        return f"at {sizes} worker {self.worker[at]} of {self.workers[at]}"


class Arrays:
    """The tile scheduler's arithmetic."""

    def number(self, x: int, /) -> Array:
        return np.int64(x)

    def apply(self, fn: str, /, *args: Array) -> Array:
        return FUNCTIONS[fn](*args)


def _divide(by: Any) -> Any:
    return lambda x, y: by(x, np.where(y == 0, 1, y))


FUNCTIONS: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": _divide(np.floor_divide),
    "mod": _divide(np.mod),
    "min": np.minimum,
    "max": np.maximum,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "not": np.logical_not,
    "neg": np.negative,
    "where": np.where,
}


MAX_DEPTH = 60


def samples(kernel: Kernel, grid: LaunchGrid) -> Samples:
    rng = random.Random(7)
    scheduler = tile_scheduler(grid.scheduler, grid.splits, grid.together)
    ((contraction, size),) = grid.contraction
    rows: list[tuple[int, ...]] = []
    extents = dict((*grid.tiles, *grid.contraction))
    fixed = {dim: num for dim, num in kernel.sizes if dim in extents}
    for number in range(NUM_SAMPLES):
        sizes = {dim: _size(rng, extent) for dim, extent in extents.items()} | fixed
        if contraction not in fixed:
            deep = rng.randint(1, MAX_DEPTH) * size - rng.randrange(size)
            sizes[contraction] = rng.choice((sizes[contraction], deep)) if number else 0
        tiles, depth = count_work(grid.tiles, grid.contraction, sizes.__getitem__)
        room = rng.choice((1, 2, 3, rng.randint(1, 20), rng.randint(1, 132)))
        least = tiles * min(max(1, grid.splits), depth) // MAX_TURNS
        workers = scheduler.num_workers(tiles, depth, max(room, least))
        for worker in range(workers) if workers < 12 else rng.sample(range(workers), 12):
            rank = rng.randrange(grid.cluster)
            rows.append((*sizes.values(), tiles, depth, worker, workers, rank))
    *held, tiles, depth, worker, workers, rank = np.array(rows, np.int64).T
    walk = scheduler.walk(Arrays(), Problem(tiles, depth, worker, workers))
    by_dim = dict(zip(extents, held, strict=True))
    length = by_dim[contraction]
    pieces = 0 if walk.splits is None else walk.splits
    return Samples(
        by_dim, worker, workers, rank, grid.cluster, grid.splits, pieces, walk, size, length
    )


def _size(rng: random.Random, extent: int) -> int:
    """Whole tiles and parts of them, few and some more."""
    tiles = rng.choice((1, 2, 3, rng.randint(1, 9)))
    return max(1, tiles * extent - rng.choice((0, 0, 1, rng.randrange(extent))))
