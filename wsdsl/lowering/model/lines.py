"""How long TMA takes for the lines of a tile, which come one by one, whatever their length.

Lines of L2 have 128 bytes, of four sectors. A line of a tile that crosses from one to the next
takes half as long again, one that begins amid a sector nearly three times as long. So do those of
tensors whose rows are no multiple of 128 bytes, and of MN-major tiles that are no such multiple
wide. On an H200, bf16, 4096 x 4096 x 4096 by 64 x 128 tiles takes 230 us, with K = 4128 (rows of
64 bytes beyond a multiple of 128) 293, 4112 (32) 324, 4104 (16) 475.
"""

from __future__ import annotations

from functools import lru_cache

from wsdsl.ir.global_memory import L2_LINE

SECTOR_BYTES = 32
"""What GMEM is written in, and L2 holds."""
CROSSING = 1.7
"""Of a line that crosses, ..."""
SPLIT = 2.8
"""... and of one that does not begin where a sector does."""
MULTICAST_CROSSING = 1.2
"""Longer by this much where CTAs load such lines for each other, and wait for each other: by pairs
of 128 x 192, ping-pong, 5000 x 5000 x 5000 takes 433 us, where 363 would do."""
COPIED = 5.5
"""Longer by this much where threads copy by words: 64 x 4096 x 4100 by 64 x 256 in 8 slices takes
23.8 us, 2048 x 2048 x 1028 by 128 x 256 33.3; ..."""
COPIED_SINGLY = 10.0
"""... and where they copy by elements of a byte or two, since rows are no whole words: 1023 x 1023
x 1023 24.0 us. Both are fitted to 250 schedules of 22 shapes, of which the quickest takes 2 % less
than what is chosen in the mean; what is predicted is 5 to 10 % too long, as are copies in front
(`choice/padding.py`)."""
SEEN = 8
"""Rows and tiles: then offsets begin again, all being multiples of 16 bytes."""


@lru_cache(maxsize=4096)
def crossing(row: int, tile: int, line: int, along_contraction: bool) -> float:
    """How much longer lines of `line` bytes take than aligned ones, where rows are `row` bytes
    apart and tiles `tile`: in the mean of rows, and of tiles if one CTA has all of them; else of
    the tile that takes longest.
    """

    def taken(offset: int) -> float:
        if offset % SECTOR_BYTES:
            return SPLIT
        return CROSSING if offset % L2_LINE + line > L2_LINE else 1.0

    of_tiles = [
        sum(taken(i * tile + j * row) for j in range(SEEN)) / SEEN
        for i in range(SEEN if tile else 1)
    ]
    return sum(of_tiles) / len(of_tiles) if along_contraction else max(of_tiles)
