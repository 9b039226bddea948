"""How much longer TMA takes for the lines of a tile that do not lie as those of L2 do.

Lines of L2 have 128 bytes, of four sectors. TMA takes those of a tile one by one, whatever their
length; one that crosses from one line of L2 to the next takes longer, one that begins amid a sector
longer still. So do those of tensors whose rows are no multiple of 128 bytes, and of MN-major tiles
that are no such multiple wide.
"""

from __future__ import annotations

from functools import lru_cache

from wsdsl.ir.global_memory import L2_LINE
from wsdsl.rates import Rates

SECTOR_BYTES = 32
"""What GMEM is written in, and L2 holds."""
SEEN = 8
"""Rows and tiles: then offsets begin again, all being multiples of 16 bytes."""


@lru_cache(maxsize=4096)
def crossing(rates: Rates, row: int, tile: int, line: int, along_contraction: bool) -> float:
    """How much longer lines of `line` bytes take than aligned ones, where rows are `row` bytes
    apart and tiles `tile`: in the mean of rows, and of tiles if one CTA has all of them; else of
    the tile that takes longest.
    """

    def taken(offset: int) -> float:
        if offset % SECTOR_BYTES:
            return rates.l2_split
        return rates.l2_crossing if offset % L2_LINE + line > L2_LINE else 1.0

    of_tiles = [
        sum(taken(i * tile + j * row) for j in range(SEEN)) / SEEN
        for i in range(SEEN if tile else 1)
    ]
    return sum(of_tiles) / len(of_tiles) if along_contraction else max(of_tiles)
