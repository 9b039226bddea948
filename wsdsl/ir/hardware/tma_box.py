"""Limits of TMA boxes, on every GPU."""

from __future__ import annotations

from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN
from wsdsl.ir.types import DType

MAX_RANK = 5
"""Dimensions of a tensor."""

TMA_ALIGN = 16
"""TMA takes multiples of these bytes: addresses and strides, along the contiguous dimension where a
box begins, and what is copied."""

LINE_ALIGN = 128
"""Alignment of a tile without a swizzle."""


MAX_BOX = 256


def box_fault(box: tuple[int, ...], rank: int, dtype: DType, swizzle: str) -> str:
    """Return the fault of a box of a tensor; "" without one."""
    if len(box) != rank or not 1 <= rank <= 5:
        return (
            f"a box of {len(box)} extents for a tensor of {rank} dimensions (1 to 5 are supported)"
        )
    if any(not 1 <= extent <= MAX_BOX for extent in box):
        return f"box={box}: a box has 1 to {MAX_BOX} elements per dimension"
    line, span = dtype.size(box[-1]), SWIZZLE_SPAN[swizzle]
    # TMA takes shorter lines too. Byte counts and offsets of boxes assume whole lines.
    if line % span or (swizzle != "none" and line != span):
        return f"a row of {line} bytes does not fit swizzle {swizzle}, whose rows have {span} bytes"
    return ""
