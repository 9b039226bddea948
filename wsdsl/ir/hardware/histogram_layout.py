"""How counters in SMEM lie, and who has which; see `ir/ops/histogram.py`."""

from __future__ import annotations

import math

from wsdsl.ir.types import DType

WORD, VECTOR, WARP = 4, 16, 32
"""Bytes of a counter, and of what a thread clears at once; counters that a warp stores at once."""


def counter_bytes(extents: tuple[int, ...], copies: int) -> int:
    """With one more, to which is added what is not counted."""
    return -(-WORD * copies * (math.prod(extents) + 1) // VECTOR) * VECTOR


def share_of(count: int, by: int, unit: int) -> int:
    """Return the share of each of `by` warpgroups; the last ones may have fewer."""
    return -(-count // (by * unit)) * unit


def nothing(dtype: DType) -> int:
    """The bits of what adds nothing, as an i32: of floats those of -0.0."""
    return -(2**31) if dtype.is_float else 0
