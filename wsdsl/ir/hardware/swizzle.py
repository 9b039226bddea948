"""How tiles lie in SMEM: panels of lines, whose bytes the swizzle mode exchanges."""

from __future__ import annotations

import math
from collections.abc import Iterator

TMA_SPAN = {"128B": 128, "64B": 64, "32B": 32, "none": 16}
"""Bytes of one line of a panel, by the swizzle mode of TMA and wgmma."""
OF_NIBBLES = "packed32"
PACKED_SPAN = {OF_NIBBLES: 32, "packed64": 64, "packed128": 128}
"""Span of packed tensors (`ir/hardware/packed_layout.py`): 64 elements of 4, 8 and 16 bits."""
SWIZZLE_SPAN = TMA_SPAN | PACKED_SPAN

SMEM_ALIGN = 1024
"""Alignment of a 128B-swizzled tile."""

PACKED_LINES = 64
"""A panel of a packed tensor is blocks of this number of lines, one after the other."""


def swizzle_address(address: int, swizzle: str) -> int:
    """Where TMA and wgmma find the byte at `address` (relative to a multiple of 1024)."""
    return address ^ (address >> 3 & {"128B": 0x70, "64B": 0x30, "32B": 0x10}.get(swizzle, 0))


def panel_address(row: int, byte: int, rows: int, swizzle: str) -> int:
    """Address of (row, byte along the columns) in a tile of `rows` lines laid out as panels."""
    span = SWIZZLE_SPAN[swizzle]
    panel = byte // span * rows * span
    if swizzle in PACKED_SPAN:
        block = row // PACKED_LINES * PACKED_LINES * span
        return panel + block + packed_address(row % PACKED_LINES, byte % span, span)
    return swizzle_address(panel + row * span + byte % span, swizzle)


def packed_address(row: int, byte: int, span: int) -> int:
    """Where a byte of line `row` lies in a packed block of 64 lines of `span` bytes.

    The block is vectors of 16 bytes, one a thread of a warpgroup, and as many for each thread as it
    takes: its elements of a fragment (64 x 64). Of 8 columns a thread has two adjacent ones of
    two lines, 8 apart: two words of 16-bit elements; of 8-bit elements one word, in which the bytes
    of the first line are the lower halves of its 16-bit halves, so that masks part the lines.
    """
    size = span // PACKED_LINES
    column, low = byte // size, byte % size
    half, lane = row // 8 % 2, row % 8 * 4 + column % 8 // 2
    thread = row // 16 * 32 + lane
    at = 2 * (column % 2) + half if size == 1 else 4 * half + 2 * (column % 2) + low
    own = column // 8 * 4 * size + at
    return own // 16 * 16 * 128 + thread * 16 + own % 16


def nibble_address(row: int, column: int, rows: int) -> int:
    """The same of elements of 4 bits, which do not stay in their byte: counted in nibbles, low ones
    first, within a tile of `rows` lines.

    A thread has one vector. The two adjacent elements that it has of a line are four nibbles apart
    in a word, so that four shifts bring each pair of a word to the lowest bits of 16-bit halves.
    """
    panel, column = column // PACKED_LINES, column % PACKED_LINES
    block, row = row // PACKED_LINES, row % PACKED_LINES
    thread = row // 16 * 32 + row % 8 * 4 + column % 8 // 2
    pair = column // 8 * 2 + row // 8 % 2
    own = pair // 4 * 8 + pair % 4 + column % 2 * 4
    return (panel * rows + block * PACKED_LINES) * PACKED_LINES + thread * 32 + own


def line_swizzle(row_bytes: int) -> str:
    """Return the swizzle mode whose span is a line, or "none"."""
    return next((mode for mode, span in TMA_SPAN.items() if span == row_bytes), "none")


def widest_swizzle(row_bytes: int) -> str:
    """The widest swizzle mode whose span divides a line of `row_bytes` bytes."""
    for mode, span in TMA_SPAN.items():
        if row_bytes % span == 0:
            return mode
    raise ValueError(f"a row of {row_bytes} bytes is not a multiple of 16 bytes")


def lines_reached(apart: int) -> int:
    """Lines of a tile from the first to the last that a fragment of 64 rows takes, where a warp's
    16 rows begin `apart` behind those of the warp before.
    """
    return 3 * apart + 16


WORD, BANKS = 4, 32
VECTOR = 16
GROUPS = BANKS * WORD // VECTOR
"""Of banks: the vectors of one transaction."""


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


def start_faults(offset: int, swizzle: str, unit: int = 0) -> Iterator[str]:
    """Yield the fault of a tile's first byte. TMA and wgmma exchange bits of addresses, not of
    offsets: 8 rows of a panel are adjacent.
    """
    unit = unit or 8 * SWIZZLE_SPAN[swizzle]
    if offset % unit:
        yield f"a tile of swizzle {swizzle} must start at a multiple of {unit} bytes"
