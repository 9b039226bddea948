"""SMEM as bytes, and where a tile's elements lie in it: panels, their bits exchanged by swizzle.

TMA, wgmma's operands and stores from registers all go through `places_of`, each with the layout
that it was told, so that two that disagree see different elements.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from wsdsl.ir.swizzle import OF_NIBBLES, PACKED_SPAN, SWIZZLE_SPAN, nibble_address, panel_address
from wsdsl.simulator.arithmetic import Array

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


class SharedMemory:
    """A CTA's dynamic SMEM. It starts as NaN bytes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.bytes = np.full(-(-size // CHUNK) * CHUNK, 0xFF, np.uint8)
        self.chunks: Array = self.bytes.view(CHUNK_DTYPE)

    def poison(self, start: int, end: int) -> None:
        self.bytes[start:end] = 0xFF

    def read(
        self, base: int, rows: int, row_bytes: int, swizzle: str, part: tuple[slice, slice]
    ) -> Array:
        """Part (rows, chunks) of the tile at `base`, as bytes."""
        if swizzle in PACKED_SPAN:
            lines, chunks = part
            if swizzle == OF_NIBBLES:
                held = self._nibbles(base, rows * row_bytes)[nibbles_of(rows, row_bytes)[lines]]
                held = held[:, 0::2] | held[:, 1::2] << 4
                return held.reshape(len(held), -1, CHUNK)[:, chunks].reshape(len(held), -1)
            held = self.bytes[places_of(rows, row_bytes, swizzle, 1)[lines] + base]
            return held.reshape(len(held), -1, CHUNK)[:, chunks].reshape(len(held), -1)
        places = places_of(rows, row_bytes, swizzle)[part]
        return self.chunks[places + base // CHUNK].view(np.uint8)

    def write(self, base: int, tile: Array, swizzle: str) -> None:
        """Lay the tile, a contiguous 2-D array, out at `base`."""
        raw = tile.view(np.uint8)
        if swizzle == OF_NIBBLES:
            held = self._nibbles(base, raw.size)
            held[nibbles_of(*raw.shape)] = np.stack([raw & 15, raw >> 4], -1).reshape(len(raw), -1)
            self.bytes[base : base + raw.size] = held[0::2] | held[1::2] << 4
            return
        if swizzle in PACKED_SPAN:
            self.bytes[places_of(*raw.shape, swizzle, 1) + base] = raw
            return
        places = places_of(raw.shape[0], raw.shape[1], swizzle)
        self.chunks[places + base // CHUNK] = raw.view(CHUNK_DTYPE)

    def _nibbles(self, base: int, size: int) -> Array:
        """A copy of so many bytes, a nibble an element."""
        raw = self.bytes[base : base + size]
        return np.stack([raw & 15, raw >> 4], -1).reshape(-1)
