"""How tiles lie in SMEM: panels of lines that TMA and wgmma swizzle."""

from __future__ import annotations

SWIZZLE_SPAN = {"128B": 128, "64B": 64, "32B": 32, "none": 16}
"""Bytes of one line of a panel, by swizzle mode."""

SMEM_ALIGN = 1024
"""What a 128B-swizzled tile must be aligned to."""


def swizzle_address(address: int, swizzle: str) -> int:
    """Where TMA and wgmma find the byte at `address` (relative to a multiple of 1024)."""
    if swizzle == "128B":
        return address ^ ((address >> 3) & 0x70)
    if swizzle == "64B":
        return address ^ ((address >> 3) & 0x30)
    if swizzle == "32B":
        return address ^ ((address >> 3) & 0x10)
    return address


def panel_address(row: int, byte: int, rows: int, swizzle: str) -> int:
    """Address of (row, byte along the columns) in a tile of `rows` lines laid out as panels."""
    span = SWIZZLE_SPAN[swizzle]
    return swizzle_address(byte // span * rows * span + row * span + byte % span, swizzle)


def line_swizzle(row_bytes: int) -> str:
    """The swizzle mode whose span is a line; "none" if there is none."""
    return next((mode for mode, span in SWIZZLE_SPAN.items() if span == row_bytes), "none")


def widest_swizzle(row_bytes: int) -> str:
    """The widest swizzle mode whose span divides a line of `row_bytes` bytes."""
    for mode, span in SWIZZLE_SPAN.items():
        if row_bytes % span == 0:
            return mode
    raise ValueError(f"a line of {row_bytes} bytes is no multiple of 16")
