"""Packed tensors: in the order in which threads hold what they compute an operand of wgmma from.

The last two dimensions are cut into blocks of 64 x 64 elements, which follow each other,
along the last dimension first; a block that reaches over an end is whole, and zeros fill it. Within
a block `packed_address` says where an element lies: a warpgroup reads it by vectors of 16 bytes,
each thread what it holds of a fragment.
"""

from __future__ import annotations

import math

from wsdsl.ir.hardware.swizzle import PACKED_LINES, PACKED_SPAN
from wsdsl.ir.types import DType

MAX_PACKED_RANK = 3
"""A tensor map has five dimensions; the last two of a packed tensor take four of them."""
UNIT = 256
"""Bytes of the innermost dimension of its tensor map: as many as a box may have."""


def packed_swizzle(dtype: DType) -> str:
    """The swizzle mode of the tensor's tiles; "" where elements of that width are not packed."""
    span = 0 if dtype.name == "bool" else PACKED_LINES * dtype.bits // 8
    return next((mode for mode, bytes in PACKED_SPAN.items() if bytes == span), "")


def num_blocks(size: int) -> int:
    return -(-size // PACKED_LINES)


def block_bytes(dtype: DType) -> int:
    return PACKED_LINES * PACKED_LINES * dtype.bits // 8


def packed_bytes(shape: tuple[int, ...], dtype: DType) -> int:
    """Of the memory that a packed tensor takes."""
    *outer, lines, last = shape
    return math.prod(outer) * num_blocks(lines) * num_blocks(last) * block_bytes(dtype)
