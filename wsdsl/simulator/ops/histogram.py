"""Counters in SMEM. Additions are in no order, like reads; to clear and to store is to write."""

import math

import numpy as np

from wsdsl.ir.hardware.histogram_layout import VECTOR, WARP, WORD, counter_bytes, nothing, share_of
from wsdsl.ir.ops import AddBins, ClearBins, StoreBins
from wsdsl.simulator.ops.gmem import add_elements, places
from wsdsl.simulator.ops.smem import write_shared
from wsdsl.simulator.reference.arithmetic import Array
from wsdsl.simulator.reference.bound_arrays import inside_of
from wsdsl.simulator.reference.fragment_arrays import as_array
from wsdsl.simulator.state.smem_bytes import span
from wsdsl.simulator.warpgroup import SharedItems, Warpgroup


def clear_bins(wg: Warpgroup, op: ClearBins) -> None:
    begin, end = _share(wg, counter_bytes(op.extents, op.copies), op.by, VECTOR)
    words = np.full((end - begin) // WORD, nothing(op.tensor.as_tensor.dtype), np.int32)
    _overwrite(wg, op, begin, words)


def add_bins(wg: Warpgroup, op: AddBins) -> None:
    if op.pred is not None and not wg.get(op.pred, op):
        return
    shared: SharedItems = wg.values[op.shared.name]
    size = counter_bytes(op.extents, op.copies)
    start = wg.item(op, shared, 0, 0, size)
    tensor = wg.cta.arguments.tensors[op.tensor.name]
    value = as_array(wg.get(op.value, op), op.value)
    index = places(wg, op, op.index)
    shape = np.broadcast_shapes(value.shape, *(i.shape for i in index))
    spread = [np.broadcast_to(i, shape) for i in index]
    inside = inside_of(tensor.array, spread, shape)
    counted = np.all([i < extent for i, extent in zip(spread, op.extents, strict=True)], axis=0)
    value = np.broadcast_to(value, shape)
    add_elements(wg, op, tensor, (spread, inside & ~counted), value)
    own = inside & counted
    linear = np.ravel_multi_index([i[own] for i in spread], op.extents) if own.any() else []
    # Which lane has an element is the layout's matter; any copy counts.
    place = np.asarray(linear, np.int64) * op.copies
    place += np.arange(len(place)) % op.copies
    dtype = np.float32 if tensor.dtype.is_float else tensor.array.dtype
    what, memory, region = f"it adds to `{shared.label}`", wg.cta.memory, span(start, size)
    for i in range(4):
        warp = wg.warp(i)
        where = memory, region, wg.by_threads(op, warp), warp, (wg.index, 4, i)
        wg.begin(op, f"{what} (warp {i})", "add", *where, asynchronous=False)
    np.add.at(memory.read(region).view(dtype), place, value[own].astype(dtype))


def store_bins(wg: Warpgroup, op: StoreBins) -> None:
    tensor = wg.cta.arguments.tensors[op.tensor.name]
    begin, end = _share(wg, math.prod(op.extents), op.by, WARP)
    each = WORD * op.copies
    held = _overwrite(wg, op, begin * each, np.full((end - begin) * op.copies, -1, np.int32))
    words = held.view(np.float32 if tensor.dtype.is_float else tensor.array.dtype)
    first = -0.0 if tensor.dtype.is_float else 0
    total = words.reshape(-1, op.copies).sum(axis=1, dtype=words.dtype, initial=first)
    index = list(np.unravel_index(np.arange(begin, end), op.extents))
    inside = inside_of(tensor.array, index, (end - begin,))
    inside &= total.view(np.int32) != nothing(tensor.dtype)
    add_elements(wg, op, tensor, ([i[None] for i in index], inside[None]), total[None])


def _share(wg: Warpgroup, count: int, by: int, unit: int) -> tuple[int, int]:
    each = share_of(count, by, unit)
    return min(wg.rank * each, count), min((wg.rank + 1) * each, count)


def _overwrite(wg: Warpgroup, op: ClearBins | StoreBins, begin: int, words: Array) -> Array:
    """Write the warpgroup's words, which nothing else uses meanwhile; return what they were."""
    shared: SharedItems = wg.values[op.shared.name]
    region = span(wg.item(op, shared, 0, begin, words.nbytes), words.nbytes)
    held = wg.cta.memory.read(region).copy()
    if words.size:
        what = f"it overwrites `{shared.label}`"
        write_shared(wg, op, region, wg.everyone, what, words.view(np.uint8))
    return held
