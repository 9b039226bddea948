"""What the busiest worker of a tile scheduler does, by formula: `pieces_of` counts every piece, and
`choose_schedule` asks for hundreds of schedules.
"""

from functools import lru_cache
from heapq import heapify, heappop, heappush

from wsdsl.ir.tile_scheduler import (
    Numbers,
    Problem,
    SplitK,
    StreamK,
    TileScheduler,
    num_counted,
    num_cut_tiles,
)
from wsdsl.record import record

MANY = 1024
"""Tiles of a worker that are not dealt out one by one: sizes that are not known may be any."""


@record
class Busiest:
    """The most that any worker has of each, though not all of it may be the same one's."""

    workers: int
    iterations: int
    """Of its loop over the work."""
    steps: int
    """Tiles of the contraction."""
    finished: int
    """Pieces that are the last of their tile, or all of it."""
    cut: int = 0
    """Tiles that are cut, of all workers."""
    parts: int = 1
    """Pieces of a tile."""
    pieces: int = 0
    """Of all tiles that are cut, of all workers."""
    handed: int = 0
    """Pieces whose sums are handed on."""
    taken: int = 0
    """Pieces that need another one's sums."""
    apart: int = 0
    """Of its steps, those at which others are elsewhere in the contraction."""


def busiest(scheduler: TileScheduler, tiles: int, depth: int, room: int) -> Busiest:
    """Of as many workers as there is room for."""
    tiles, depth = max(1, tiles), max(1, depth)
    workers = scheduler.num_workers(tiles, depth, room)
    if isinstance(scheduler, SplitK):
        return _split(scheduler, tiles, depth, workers)
    if isinstance(scheduler, StreamK):
        return _streamed(tiles, depth, workers)
    # Without `persistent` there are more workers than room: as many run one after the other.
    iterations = -(-tiles // min(workers, max(1, room)))
    return Busiest(workers, iterations, iterations * depth, iterations)


@lru_cache(maxsize=256)
def unevenness(tiles: int, workers: int, places: int) -> float:
    """By how much longer the busiest worker takes than if all tiles were alike, where of `places`
    tiles that follow each other the first takes one part of a time, the last all of them.
    """

    def taken(first: int) -> int:
        """By the worker that begins with this tile; after `places` of them all begins anew."""
        rounds, rest = divmod(-(-(tiles - first) // workers), places)
        parts = [(first + i * workers) % places + 1 for i in range(places if rounds else rest)]
        return rounds * sum(parts) + sum(parts[:rest])

    most = max(map(taken, range(min(tiles, workers))), default=0)
    return most / (-(-tiles // workers) * (places + 1) / 2)


@lru_cache(maxsize=64)
def claimed_tiles(tiles: int, workers: int, places: int) -> tuple[tuple[int, ...], ...]:
    """Which tiles each worker is dealt ("grid") or claims ("dynamic") as it is done with others, if
    a tile takes as long as its place among `places` that follow each other.
    """
    workers = min(tiles, workers)
    rows: list[list[int]] = [[w] for w in range(workers)]
    done = [(w % places + 1, w) for w in range(workers)]
    heapify(done)
    for tile in range(workers, tiles):
        now, w = heappop(done)
        rows[w].append(tile)
        heappush(done, (now + tile % places + 1, w))
    return tuple(map(tuple, rows))


@lru_cache(maxsize=256)
def claimed_unevenness(tiles: int, workers: int, places: int) -> float:
    """The same as `unevenness` where workers take tiles as they are done with others."""
    if tiles > MANY * workers:
        return 1.0  # They end apart by no more than a tile of so many.
    rows = claimed_tiles(tiles, workers, places)
    most = max(sum(tile % places + 1 for tile in row) for row in rows)
    return most / (-(-tiles // workers) * (places + 1) / 2)


def _split(scheduler: SplitK, tiles: int, depth: int, workers: int) -> Busiest:
    parts = min(scheduler.splits, depth, workers)
    iterations = -(-tiles // (workers // parts))
    steps = iterations * -(-depth // parts)
    moved = iterations if parts > 1 else 0
    return Busiest(
        workers, iterations, steps, iterations, tiles, parts, tiles * parts, moved, moved
    )


def _streamed(tiles: int, depth: int, workers: int) -> Busiest:
    cut = int(num_cut_tiles(Numbers(), tiles, workers))
    whole = (tiles - cut) // workers
    if not cut:
        return Busiest(workers, whole, whole * depth, whole)
    counted = int(num_counted(Numbers(), Problem(tiles, depth, 0, workers), cut))
    base, extra = divmod(cut * counted, workers)
    longest = most = finished = handed = taken = pieces = 0
    # Runs follow each other, and so do the pieces of a tile.
    end = parts = own = 0
    tile = -1
    for w in range(1, workers + 1):
        begin, end = end, w * base + w * extra // workers
        if begin == end:
            continue
        first, last, over = begin // counted, (end - 1) // counted, end // counted
        tile, own = first, own + 1 if tile == first else 1
        parts = own if own > parts else parts
        if last > first:
            tile, own = last, 1
        pieces += last - first + 1
        steps = end - begin + (over - first) * (depth - counted)
        longest = steps if steps > longest else longest
        most = last - first if last - first > most else most
        finished = over - first if over - first > finished else finished
        handed |= end % counted > 0
        taken |= begin % counted > 0
    return Busiest(
        workers,
        iterations=whole + most + 1,
        steps=whole * depth + longest,
        finished=whole + finished,
        cut=cut,
        parts=parts,
        pieces=pieces,
        handed=int(handed),
        taken=int(taken),
        apart=longest,
    )
