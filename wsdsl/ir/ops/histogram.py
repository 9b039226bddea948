"""SCHEDULED: counters in SMEM, which a CTA adds to where elements are chosen by what it computes.

Of an element of global memory a CTA has `copies` counters, of 32 bits: floats are added up in f32.
They are adjacent, so that lanes that add to one element at the same time use other banks. The
neutral value of a float is -0.0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from wsdsl.ir.effects import RANK, Access, Effects, Span, whole
from wsdsl.ir.hardware.gmem_limits import ADDED_ATOMICALLY
from wsdsl.ir.hardware.histogram_layout import VECTOR, WARP, WORD, counter_bytes, share_of
from wsdsl.ir.op import SCHEDULED, Makers, Op, Value, op_class
from wsdsl.ir.types import Shared


class Bins:
    """Base of ops on counters in SMEM."""

    tensor: Value
    shared: Value
    extents: tuple[int, ...]
    copies: int

    def faults(self, made: Makers) -> Iterator[str]:
        kind, item = self.tensor.as_tensor, self.shared.type_as(Shared)
        if kind.dtype.name not in ADDED_ATOMICALLY or len(self.extents) != len(kind.dims):
            yield f"counters of {self.extents} elements do not fit {kind}"
        size = counter_bytes(self.extents, self.copies)
        if item.num != 1 or size > item.bytes:
            yield f"counters need {size} bytes of one item; there are {item}"


@op_class(SCHEDULED, "warpgroup", was="clear_counters")
class ClearBins(Bins, Op):
    """The threads of the partition's `by` warpgroups, which divide the counters, write the neutral
    value to all counters of the item of `shared`.
    """

    tensor: Value
    shared: Value
    extents: tuple[int, ...]
    copies: int = 1
    by: int = 1

    def effects(self, made: Makers) -> Effects:
        size = counter_bytes(self.extents, self.copies)
        each = share_of(size, self.by, VECTOR)
        spans = ((Span(0, each, ((RANK, each),), limit=size),),)
        yield Access("write", "smem", self.shared, spans=spans)


@op_class(SCHEDULED, "warpgroup", was="add_counters", any_lanes=True)
class AddBins(Bins, Op):
    """Add `value` to elements of `tensor`, like `store_global` with `accumulate`; but to counters
    of the item of `shared` where there are such: of the first `extents` along each dimension, in
    row-major order. A lane takes the counter of its number modulo `copies`. It is atomic.
    """

    tensor: Value
    index: tuple[Value, ...]
    value: Value
    shared: Value
    extents: tuple[int, ...]
    copies: int = 1
    pred: Value | None = None

    def effects(self, made: Makers) -> Effects:
        spans = whole(0, counter_bytes(self.extents, self.copies))
        yield Access("add", "smem", self.shared, spans=spans)
        yield Access("add", "gmem", self.tensor)


@op_class(SCHEDULED, "warpgroup", was="store_counters")
class StoreBins(Bins, Op):
    """The warps of the partition's `by` warpgroups, which divide the counters, add the item's
    counters to `tensor`, atomically, but for neutral values and elements outside of the tensor.
    Afterwards the counters are undefined.
    """

    tensor: Value
    shared: Value
    extents: tuple[int, ...]
    copies: int = 1
    by: int = 1

    def effects(self, made: Makers) -> Effects:
        size = counter_bytes(self.extents, self.copies)
        each = share_of(math.prod(self.extents), self.by, WARP) * WORD * self.copies
        spans = ((Span(0, each, ((RANK, each),), limit=size),),)
        yield Access("take", "smem", self.shared, spans=spans)
        yield Access("add", "gmem", self.tensor)
