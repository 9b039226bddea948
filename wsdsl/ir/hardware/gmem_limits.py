"""Global memory of every GPU: sizes of tensors, lines of L2, what is added atomically."""

from __future__ import annotations

import operator
from typing import Any

MAX_SIZE = 2**31 - 2**16
"""Of a dimension: kernels count in i32, and round sizes up to tiles."""

L2_LINE = 128
"""Bytes of a line of L2."""

COPY_WORD = 4
"""Bytes: where rows begin at multiples, threads copy what TMA cannot take by words, else by
elements."""

ADDED_ATOMICALLY = ("f32", "f16", "bf16", "i32", "u32")
"""Element types that global memory adds atomically, directly and by TMA."""


def whole_lines(row_bytes: int) -> int:
    """Bytes of a row that is filled up to whole lines of L2."""
    return -(-row_bytes // L2_LINE) * L2_LINE


def is_size(given: Any) -> bool:
    """Whether a dimension may have this size."""
    try:
        return 0 <= operator.index(given) <= MAX_SIZE and not isinstance(given, bool)
    except TypeError:
        return False
