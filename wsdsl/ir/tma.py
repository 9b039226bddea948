"""What TMA takes, of whatever card."""

from __future__ import annotations

MAX_RANK = 5
"""Dimensions of a tensor."""

TMA_ALIGN = 16
"""Bytes of which TMA takes multiples: addresses and strides, along the contiguous dimension where a
box begins, and what is copied."""

LINE_ALIGN = 128
"""What a tile without a swizzle must be aligned to."""
