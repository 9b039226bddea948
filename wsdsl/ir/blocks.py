"""Fragments in the order of registers: blocks of 64 x 8 elements of four bytes, in each of them the
four that thread after thread of a warpgroup holds.
"""

from __future__ import annotations

LINES, COLUMNS = 64, 8
HELD = 4
"""Elements of a block that a thread holds."""
ELEMENT_BYTES = 4
HELD_BYTES = HELD * ELEMENT_BYTES
BLOCK_BYTES = LINES * COLUMNS * ELEMENT_BYTES
