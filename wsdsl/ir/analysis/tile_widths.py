"""Widths of tiles among which a launch chooses, in columns of wgmma's N."""

from __future__ import annotations

from collections.abc import Callable

from wsdsl.ir.hardware.wgmma_shapes import WIDTH_STEP
from wsdsl.ir.tile_scheduler import Extents, count_work

OVERHEAD = 16
"""Time of a tile without its products, as a number of columns. The model gives the chosen width at
most 0.4 % more time in the mean than the best width for more than 64 columns, else at most 1 %
(benchmarks/results/one_off_races.md)."""
LEAST = 32
"""Columns below which the time of a tile is constant: loads of the other operand are the limit
(benchmarks/results/one_off_races.md)."""


def fastest_narrowing(
    tiles: Extents, narrowed: int, widths: int, size: Callable[[str], int], room: int
) -> int:
    """Return the fastest of `narrowings(widths)` for a launch: columns by which the side `narrowed`
    of `tiles`, which are the widest, gets narrower. `room`: work items that run at the same time.
    """
    others, _ = count_work((*tiles[:narrowed], *tiles[narrowed + 1 :]), (), size)
    (dim, widest), room = tiles[narrowed], max(1, room)
    extent = size(dim)

    def cost(columns: int) -> int:
        side = widest - columns
        return -(-others * -(-extent // side) // room) * (max(LEAST, side) + OVERHEAD)

    return min(narrowings(widths), key=cost)


def narrower_side(tiles: Extents, narrowed: int, columns: int) -> Extents:
    """Return tiles whose side `narrowed` is narrower by `columns`. Two sides may be along one
    dimension."""
    return tuple((dim, n - columns * (at == narrowed)) for at, (dim, n) in enumerate(tiles))


def narrowings(widths: int) -> range:
    """Columns by which tiles may be narrower, one number for each of `widths`."""
    return range(0, WIDTH_STEP * widths, WIDTH_STEP)
