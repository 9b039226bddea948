"""SMEM as bytes, and where a tile's elements lie in it: panels, their bits exchanged by swizzle.

All accesses go through regions: the race detector, the recorder of effects and the copy of the data
read the same one. TMA, wgmma operands and stores from registers build theirs from their attributes
for the layout, so that two that disagree see different elements.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from wsdsl.ir.hardware.swizzle import (
    OF_NIBBLES,
    PACKED_LINES,
    PACKED_SPAN,
    SWIZZLE_SPAN,
    nibble_address,
    panel_address,
)
from wsdsl.simulator.reference.arithmetic import Array
from wsdsl.simulator.state.smem_races import SharedAccesses
from wsdsl.simulator.state.vector_clocks import Clocks

CHUNK = 16
"""Bytes that stay together under every swizzle mode but those of packed tensors."""

# NumPy gathers 16-byte items fastest as complex128; only their bits are moved.
CHUNK_DTYPE = np.complex128


@cache
def places_of(rows: int, row_bytes: int, swizzle: str, chunk: int = CHUNK) -> Array:
    """For each (row, `chunk` bytes of it) of a tile in panels, which chunk of the tile holds it."""
    row = np.arange(rows)[:, None]
    byte = np.arange(0, row_bytes, chunk)[None, :]
    address: Any = panel_address(row, byte, rows, swizzle)  # type: ignore[arg-type]
    places: Array = np.asarray(address) // chunk
    places.setflags(write=False)
    return places


@cache
def nibbles_of(rows: int, row_bytes: int) -> Array:
    """For each (row, nibble of it) of a tile in panels of packed nibbles, which one holds it."""
    row, column = np.arange(rows)[:, None], np.arange(2 * row_bytes)[None, :]
    places: Array = np.asarray(nibble_address(row, column, rows))  # type: ignore[arg-type]
    places.setflags(write=False)
    return places


def alignment(swizzle: str) -> int:
    """Where a tile may start: the swizzle pattern's period, and what TMA asks for."""
    return max(128, 8 * SWIZZLE_SPAN[swizzle])


@dataclass(frozen=True, eq=False, slots=True)
class Region:
    """Bytes of SMEM that an access moves.

    ranges: bytes that the race detector checks, all of `index` among them
    index: numbers of the units, of `unit` bytes each; 0 for nibbles
    """

    ranges: Sequence[tuple[int, int]]
    index: Any
    unit: int = 1

    @property
    def bytes(self) -> Array:
        """Return the addresses of the bytes that are moved."""
        if isinstance(self.index, slice):
            return np.arange(self.index.start, self.index.stop)
        if self.unit <= 1:
            return self.index if self.unit else self.index // 2
        return self.index[..., None] * self.unit + np.arange(self.unit)


def span(start: int, size: int) -> Region:
    return Region([(start, start + size)], slice(start, start + size))


@lru_cache(1024)
def tile(
    base: int,
    rows: int,
    row_bytes: int,
    swizzle: str,
    lines: tuple[int, int] | None = None,
    columns: tuple[int, int] | None = None,
) -> Region:
    """Return lines of a tile of `rows` lines in panels at `base`, or bytes `columns` of them."""
    begin, end = lines or (0, rows)
    first, last = columns or (0, row_bytes)
    part = slice(begin, end), slice(first, last)
    wide = SWIZZLE_SPAN[swizzle]
    if swizzle in PACKED_SPAN:
        # A line lies all over its block.
        begin, end = begin // PACKED_LINES * PACKED_LINES, -(-end // PACKED_LINES) * PACKED_LINES
    starts = [base + panel * rows * wide for panel in range(first // wide, -(-last // wide))]
    ranges = [(start + begin * wide, start + end * wide) for start in starts]
    if (begin, end) == (0, rows):
        ranges = [(starts[0], starts[-1] + rows * wide)]
    if swizzle == OF_NIBBLES:
        part = part[0], slice(2 * first, 2 * last)
        return Region(ranges, nibbles_of(rows, row_bytes)[part] + 2 * base, 0)
    if swizzle in PACKED_SPAN or first % CHUNK or last % CHUNK:
        return Region(ranges, places_of(rows, row_bytes, swizzle, 1)[part] + base)
    part = part[0], slice(first // CHUNK, last // CHUNK)
    return Region(ranges, places_of(rows, row_bytes, swizzle)[part] + base // CHUNK, CHUNK)


class SharedMemory:
    """A CTA's dynamic SMEM. It starts as NaN bytes."""

    def __init__(self, size: int, clocks: Clocks, cta: int) -> None:
        self.size, self.cta = size, cta
        self.accesses = SharedAccesses(size, clocks)
        self.bytes = np.full(-(-size // CHUNK) * CHUNK, 0xFF, np.uint8)
        self.chunks: Array = self.bytes.view(CHUNK_DTYPE)

    def poison(self, region: Region) -> None:
        for start, end in region.ranges:
            self.bytes[start:end] = 0xFF

    def read(self, region: Region) -> Array:
        """Return a region's bytes; of a `span` the memory itself."""
        if region.unit:
            units = self.chunks if region.unit == CHUNK else self.bytes
            return units[region.index].view(np.uint8)
        held = self.bytes[region.bytes] >> 4 * (region.index & 1).astype(np.uint8) & 15
        return held[:, 0::2] | held[:, 1::2] << 4

    def write(self, region: Region, held: Any) -> None:
        """Write a region's bytes, a contiguous array of its shape."""
        if region.unit == CHUNK:
            self.chunks[region.index] = held.view(CHUNK_DTYPE)
        elif region.unit:
            self.bytes[region.index] = held
        else:
            start, end = region.ranges[0][0], region.ranges[-1][1]
            raw = self.bytes[start:end]
            nibbles = np.stack([raw & 15, raw >> 4], -1).reshape(-1)
            both = np.stack([held & 15, held >> 4], -1)
            nibbles[region.index - 2 * start] = both.reshape(region.index.shape)
            self.bytes[start:end] = nibbles[0::2] | nibbles[1::2] << 4
