"""What TMA takes, of whatever card."""

from __future__ import annotations

from wsdsl.ir.swizzle import SWIZZLE_SPAN
from wsdsl.ir.types import DType

MAX_RANK = 5
"""Dimensions of a tensor."""

TMA_ALIGN = 16
"""Bytes of which TMA takes multiples: addresses and strides, along the contiguous dimension where a
box begins, and what is copied."""

LINE_ALIGN = 128
"""What a tile without a swizzle must be aligned to."""


MAX_BOX = 256


def box_fault(box: tuple[int, ...], rank: int, dtype: DType, swizzle: str) -> str:
    """What is wrong with a box of a tensor; "" if nothing."""
    if len(box) != rank or not 1 <= rank <= 5:
        return "a box has one extent a dimension, for 1 to 5 dimensions"
    if any(not 1 <= extent <= MAX_BOX for extent in box):
        return f"a box is 1 to {MAX_BOX} elements in each dimension"
    line, span = dtype.size(box[-1]), SWIZZLE_SPAN[swizzle]
    # TMA takes shorter lines too. Who counts or places a box's bytes takes its lines to be whole.
    if line % span or (swizzle != "none" and line != span):
        return f"a line of {line} bytes with swizzle {swizzle}, whose lines are {span} bytes"
    return ""
