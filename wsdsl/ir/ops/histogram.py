"""SCHEDULED: counters in SMEM, which a CTA adds to where elements are chosen by what it computes.

Of an element of global memory a CTA has `copies` counters, of 32 bits: floats are added up in f32.
They are adjacent, so that lanes that add to one element at the same time use other banks. The
neutral value of a float is -0.0.
"""

from __future__ import annotations

from wsdsl.ir.op import SCHEDULED, Op, Value, op_class


@op_class(SCHEDULED, "warpgroup")
class ClearBins(Op):
    """The threads of the partition's `by` warpgroups, which divide the counters, write the neutral
    value to all counters of the item of `shared`.
    """

    tensor: Value
    shared: Value
    extents: tuple[int, ...]
    copies: int = 1
    by: int = 1


@op_class(SCHEDULED, "warpgroup")
class AddBins(Op):
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


@op_class(SCHEDULED, "warpgroup")
class StoreBins(Op):
    """The warps of the partition's `by` warpgroups, which divide the counters, add the item's
    counters to `tensor`, atomically, but for neutral values and elements outside of the tensor.
    Afterwards the counters are undefined.
    """

    tensor: Value
    shared: Value
    extents: tuple[int, ...]
    copies: int = 1
    by: int = 1
