"""How lines of a tile lie in SMEM that threads write element by element along the other axis.

SMEM has 32 banks of four bytes, and what 32 threads access at once takes one turn if no two of them
need different words of one bank. Threads that write a column of a tile need places of as many
lines, and those that read a line take vectors of 16 bytes from it. So vectors of a line are
exchanged, by bits that change where a writer goes on to the next thread: after `step` lines.
Where readers take no vectors, words are exchanged instead, by the number of the line (`step` 0).
"""

from __future__ import annotations

import math

WORD, BANKS = 4, 32
VECTOR = 16
GROUPS = BANKS * WORD // VECTOR
"""Of banks: as many vectors as one turn takes."""


def unit_of(step: int) -> int:
    """Bytes that stay together."""
    return VECTOR if step else WORD


def exchanged(line_bytes: int, step: int) -> int:
    """How many units of a line change places with each other: a power of two."""
    return math.gcd(GROUPS if step else BANKS, line_bytes // unit_of(step))


def line_place(line: int, byte: int, line_bytes: int, step: int) -> int:
    """Where a byte of a line lies: the last unit's bits are exclusive-or'd with the line's."""
    unit = unit_of(step)
    turned = line // max(1, step) % exchanged(line_bytes, step)
    return line * line_bytes + (byte // unit ^ turned) * unit + byte % unit
