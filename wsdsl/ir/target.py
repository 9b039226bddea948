"""Facts of the card that several layers need: SMEM swizzle, limits, tile layout in panels."""

from __future__ import annotations

import operator
from typing import Any

SMEM_BYTES = 232448
"""Dynamic SMEM a CTA may have on sm_90 (227 KB)."""

MAX_CLUSTER = 8
"""CTAs of a cluster, on every card and without asking for more."""

SMEM_ALIGN = 1024
"""What a 128B-swizzled tile must be aligned to."""

LINE_ALIGN = 128
"""What a tile without a swizzle must be aligned to, for TMA."""

MAX_RANK = 5
"""Dimensions of a tensor that TMA takes."""
TMA_ALIGN = 16
"""Bytes of which TMA takes multiples: addresses and strides, along the contiguous dimension where a
box begins, and what is copied."""

MAX_SIZE = 2**31 - 2**16
"""Of a dimension: kernels count in i32, and round sizes up to tiles."""

L2_LINE = 128
"""Bytes of a line of L2."""

COPY_WORD = 4
"""Bytes: where rows begin at multiples, threads copy what TMA can not take by words, else by
elements."""

REGISTER_FILE = 65536
"""Registers of an SM."""

ADDED_ATOMICALLY = ("f32", "f16", "bf16", "i32", "u32")
"""Element types that global memory adds atomically, directly and by TMA."""

SWIZZLE_SPAN = {"128B": 128, "64B": 64, "32B": 32, "none": 16}
"""Bytes of one line of a panel, by swizzle mode."""


def entry_registers(warpgroups: int) -> int:
    """Registers a thread with which a kernel of so many starts."""
    return REGISTER_FILE // (128 * warpgroups) // 8 * 8


def whole_lines(row_bytes: int) -> int:
    """Bytes of a row that is filled up to whole lines of L2."""
    return -(-row_bytes // L2_LINE) * L2_LINE


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


def is_size(given: Any) -> bool:
    """Whether a dimension may have this size."""
    try:
        return 0 <= operator.index(given) <= MAX_SIZE and not isinstance(given, bool)
    except TypeError:
        return False
