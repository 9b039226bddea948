"""Which worker (a CTA, or a cluster) does what part of the work, and in what order.

The work is output tiles, each a sum over `depth` tiles of the contraction. A tile scheduler gives
every worker a loop, and for each of its iterations a `Piece`: an output tile, and which tiles of
the contraction to sum. The work units of a split tile cover its contraction without gaps or
overlap, and all but the first need the accumulators of the one before.

- `DataParallel`: whole tiles, worker by worker ("grid", "persistent"). The CTAs of a worker that is
  a cluster may share the contraction of each tile: each has the same number of steps, and the
  last may exceed its end, so that they stay together. "dynamic" is a "grid" whose running workers
  take over those that have not started (`ir/ops/clc.py`).
- `SplitK`: every tile in `splits` equal splits (fewer where there are fewer workers); a worker does
  one split of each tile, in order. Splits that run together go through the contraction
  together too, each every `splits`-th step, so that what they read of a row at one time lies
  together in memory.
- `StreamK`: the remainder after the same number of whole tiles per worker is divided
  evenly, in consecutive runs of tiles of the contraction; then come whole tiles; adjacent
  ones run together. If less than half of the workers would be busy with the remainder, a whole tile
  for each is divided with it, since a tile of many splits has to wait for each of them. A run is
  walked backwards, so that the beginnings of tiles, for which others wait, come first. A run that
  finishes no tile is a little shorter than others, since somebody waits for all of it.

A work unit only needs results of a worker with a lower number: in `SplitK` the same iteration of
the one with the split before, in `StreamK` the first iteration of the worker before. So no
order can end in a circle of waiting workers. More than that, the workers with the lowest numbers
get done without any other; hence they may be started in the order of their numbers, as soon as
there is room for each, and kernels that share the GPU cannot keep each other waiting for ever.

The same formulas make the kernel's scalar code and numbers on the host: they are written for any
`Arithmetic`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from wsdsl.ir.integers import ON_INTEGERS

T = TypeVar("T")
Extents = tuple[tuple[str, int], ...]
"""(dimension, tile) along each axis."""


LEAD, LEAD_SHARE = 4, 8
"""By how many tiles of the contraction a run that finishes no tile is shorter than one that does,
and at most what part of it that is. Meanwhile its sums get from CTA to CTA.
"""


class Arithmetic(Protocol[T]):
    """i32 arithmetic on values of the IR, Python's numbers, or NumPy arrays."""

    def number(self, x: int, /) -> T: ...
    def apply(self, fn: str, /, *args: T) -> T:
        """`fn` is one of the functions of `map`: "add", "sub", "mul", "floordiv", "mod", "min",
        "max", "lt", "le", "eq", "where".
        """
        ...


@dataclass(frozen=True)
class Problem(Generic[T]):
    """`tiles` of the output (clusters of them), each of `depth` >= 1 tiles of the contraction;
    `worker` of `workers`. Where the CTAs of a cluster share the contraction, this is the `part`-th.
    """

    tiles: T
    depth: T
    worker: T
    workers: T
    part: T | None = None


@dataclass(frozen=True)
class Piece(Generic[T]):
    """Tiles begin, begin + stride, ... (to `end`, exclusive) of the contraction of output tile
    `tile`.
    """

    tile: T
    begin: T
    end: T
    part: T | None = None
    """Its number among the tile's, where all tiles are cut alike."""
    length: T | None = None
    """Tiles of the contraction, where all splits have as many; the last may then exceed it."""
    stride: T | None = None
    """None: 1."""


class Walk(ABC, Generic[T]):
    """One worker's way: `for at in range(start, stop, step)`, and `piece(at)`."""

    start: T
    stop: T
    step: T
    splits: T | None = None
    """Splits per tile, where all tiles have as many."""

    def __init__(self, arithmetic: Arithmetic[T], problem: Problem[T], scheduler: Any) -> None:
        self.arithmetic, self.problem, self.scheduler = arithmetic, problem, scheduler
        self.prepare()

    def apply(self, fn: str, *args: T) -> T:
        return self.arithmetic.apply(fn, *args)

    def number(self, x: int) -> T:
        return self.arithmetic.number(x)

    @abstractmethod
    def prepare(self) -> None:
        """Compute values that do not depend on the iteration."""

    @abstractmethod
    def piece(self, at: T) -> Piece[T]: ...


class TileScheduler(ABC):
    """The interface between the host and the kernel."""

    splits_tiles: bool = False
    """Whether work units may be less than whole tiles."""

    walks: type[Walk[Any]]

    def walk(self, arithmetic: Arithmetic[T], problem: Problem[T]) -> Walk[T]:
        return self.walks(arithmetic, problem, self)

    @abstractmethod
    def num_workers(self, tiles: int, depth: int, room: int) -> int:
        """How many to launch where `room` can run at the same time."""

    def num_slots(self, tiles: int, depth: int, workers: int) -> int:
        """Tiles that are cut have numbers below this one."""
        return 0

    def num_together(self, tiles: int, depth: int) -> int:
        """How many workers, at the least, must run at the same time."""
        return 1

    def fault(self, tiles: int, depth: int, room: int) -> str:
        """Return why this schedule cannot do the work, or ""."""
        pieces = self.num_together(tiles, depth)
        if pieces <= max(1, room):
            return ""
        return f"{pieces} splits wait for each other; {room} can run at the same time"


class DataParallelWalk(Walk[T]):
    def prepare(self) -> None:
        p = self.problem
        self.start, self.stop, self.step = p.worker, p.tiles, p.workers
        if p.part is not None:
            self.splits = sharing = self.number(self.scheduler.sharing)
            more = self.apply("add", p.depth, self.number(self.scheduler.sharing - 1))
            self.each = self.apply("floordiv", more, sharing)
            self.begin = self.apply("mul", p.part, self.each)

    def piece(self, at: T) -> Piece[T]:
        p = self.problem
        if p.part is None:
            return Piece(at, self.number(0), p.depth)
        end = self.apply("add", self.begin, self.each)
        return Piece(at, self.begin, end, p.part, self.each)


@dataclass(frozen=True)
class DataParallel(TileScheduler):
    """Whole tiles; a worker for each unless `persistent`. `sharing` CTAs of a worker share the
    contraction of each.
    """

    persistent: bool = True
    sharing: int = 1
    walks = DataParallelWalk

    def num_workers(self, tiles: int, depth: int, room: int) -> int:
        return min(tiles, max(1, room)) if self.persistent else tiles


class SplitKWalk(Walk[T]):
    def prepare(self) -> None:
        p, one, together = self.problem, self.number(1), self.scheduler.together
        splits = self.apply("min", self.number(self.scheduler.splits), p.depth)
        self.splits = splits = self.apply("min", splits, p.workers)
        abreast = self.apply("floordiv", p.workers, splits)
        self.part = part = self.apply("floordiv", p.worker, abreast)
        self.begin, self.end, self.stride = part, p.depth, splits if together else None
        if not together:
            base = self.apply("floordiv", p.depth, splits)
            extra = self.apply("mod", p.depth, splits)
            self.begin = _share(self, part, splits, base, extra)
            self.end = _share(self, self.apply("add", part, one), splits, base, extra)
        # Workers beyond the division are idle.
        idle = self.apply("le", splits, part)
        first = self.apply("mod", p.worker, abreast)
        self.start = self.apply("where", idle, p.tiles, first)
        self.stop, self.step = p.tiles, abreast

    def piece(self, at: T) -> Piece[T]:
        return Piece(at, self.begin, self.end, self.part, stride=self.stride)


@dataclass(frozen=True)
class SplitK(TileScheduler):
    """`together`: the splits of a tile wait for each other, so all must run at the same time."""

    splits: int
    together: bool = False
    splits_tiles = True
    walks = SplitKWalk

    def num_workers(self, tiles: int, depth: int, room: int) -> int:
        splits = min(self.splits, depth, max(1, room))
        return splits * min(tiles, max(1, room) // splits)

    def num_slots(self, tiles: int, depth: int, workers: int) -> int:
        return tiles

    def num_together(self, tiles: int, depth: int) -> int:
        return tiles * min(self.splits, depth) if self.together else 1


class StreamKWalk(Walk[T]):
    def prepare(self) -> None:
        p, one, zero = self.problem, self.number(1), self.number(0)
        self.cut = num_cut_tiles(self.arithmetic, p.tiles, p.workers)
        self.counted = num_counted(self.arithmetic, p, self.cut)
        steps = self.apply("mul", self.cut, self.counted)
        base = self.apply("floordiv", steps, p.workers)
        extra = self.apply("mod", steps, p.workers)
        self.first = _share(self, p.worker, p.workers, base, extra)
        self.last = _share(self, self.apply("add", p.worker, one), p.workers, base, extra)
        self.top = self.apply(
            "floordiv", self.apply("max", self.apply("sub", self.last, one), zero), self.counted
        )
        bottom = self.apply("floordiv", self.first, self.counted)
        touched = self.apply("add", self.apply("sub", self.top, bottom), one)
        any_step = self.apply("lt", self.first, self.last)
        self.pieces = self.apply("where", any_step, touched, zero)
        whole = self.apply("floordiv", self.apply("sub", p.tiles, self.cut), p.workers)
        self.start, self.step = zero, one
        self.stop = self.apply("add", self.pieces, whole)

    def piece(self, at: T) -> Piece[T]:
        p, zero = self.problem, self.number(0)
        is_cut = self.apply("lt", at, self.pieces)
        tile = self.apply("sub", self.top, at)
        before = self.apply("mul", tile, self.counted)
        begin = self.apply("max", self.apply("sub", self.first, before), zero)
        end = self.apply("sub", self.last, before)
        end = self.apply("where", self.apply("lt", end, self.counted), end, p.depth)
        turn = self.apply("sub", at, self.pieces)
        whole = self.apply("add", self.apply("mul", turn, p.workers), p.worker)
        return Piece(
            self.apply("where", is_cut, tile, self.apply("add", self.cut, whole)),
            self.apply("where", is_cut, begin, zero),
            self.apply("where", is_cut, end, p.depth),
        )


@dataclass(frozen=True)
class StreamK(TileScheduler):
    splits_tiles = True
    walks = StreamKWalk

    def num_workers(self, tiles: int, depth: int, room: int) -> int:
        return min(tiles * depth, max(1, room))

    def num_slots(self, tiles: int, depth: int, workers: int) -> int:
        return int(num_cut_tiles(Numbers(), tiles, workers)) if workers else 0


def num_cut_tiles(arithmetic: Arithmetic[T], tiles: T, workers: T) -> T:
    """How many tiles `StreamK` cuts, the first ones; the others come out even."""
    apply, number = arithmetic.apply, arithmetic.number
    left = apply("mod", tiles, workers)
    with_a_wave = apply("add", left, workers)
    few = apply("lt", apply("mul", left, number(2)), workers)
    more = apply("where", few, apply("min", with_a_wave, tiles), left)
    return apply("where", apply("eq", left, number(0)), number(0), more)


def num_counted(arithmetic: Arithmetic[T], problem: Problem[T], cut: T) -> T:
    """How many steps of each tile `StreamK` counts when it shares out the `cut` ones: not the last
    few where all runs are less than a tile, so that who finishes one has more to do.
    """
    apply, number = arithmetic.apply, arithmetic.number
    run = apply("floordiv", apply("mul", cut, problem.depth), problem.workers)
    lead = apply("min", number(LEAD), apply("floordiv", run, number(LEAD_SHARE)))
    few = apply("lt", problem.tiles, problem.workers)
    return apply("sub", problem.depth, apply("where", few, lead, number(0)))


def _share(walk: Walk[T], part: T, parts: T, base: T, extra: T) -> T:
    """Where `part` begins, if `extra` of the `parts` have one more than `base`: spread evenly, so
    that where runs and tiles come out even now and then, they do so exactly.
    """
    more = walk.apply("floordiv", walk.apply("mul", part, extra), parts)
    return walk.apply("add", walk.apply("mul", part, base), more)


def tile_scheduler(
    name: str, splits: int = 0, together: bool = False, sharing: int = 1
) -> TileScheduler:
    """By the name that `Schedule.scheduler` has."""
    if name == "split_k":
        return SplitK(splits, together)
    return StreamK() if name == "stream_k" else DataParallel(name == "persistent", sharing)


class Numbers:
    """Python's integers."""

    def number(self, x: int, /) -> int:
        return x

    def apply(self, fn: str, /, *args: int) -> int:
        return args[1 if args[0] else 2] if fn == "where" else int(ON_INTEGERS[fn](*args))


def num_steps(piece: Piece[int]) -> int:
    return -((piece.begin - piece.end) // (piece.stride or 1))


def pieces_of(
    scheduler: TileScheduler, tiles: int, depth: int, workers: int
) -> list[list[Piece[int]]]:
    """Return the work units of every worker, in order."""
    made: list[list[Piece[int]]] = []
    for worker in range(workers):
        walk = scheduler.walk(Numbers(), Problem(tiles, depth, worker, workers))
        made.append([walk.piece(at) for at in range(walk.start, walk.stop, walk.step)])
    return made


def count_work(tiles: Extents, contraction: Extents, size: Callable[[str], int]) -> tuple[int, int]:
    """Return the tiles of the output (for clusters), and of the contraction in each, at least 1.
    `size` gives a dimension's.
    """

    def count(extents: Extents) -> int:
        return math.prod(-(-size(dim) // extent) for dim, extent in extents)

    return count(tiles), max(1, count(contraction))
