"""Direct accesses of a warpgroup to global memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wsdsl.ir import memory_ops as m
from wsdsl.ir.op import Op, Value
from wsdsl.simulator import arithmetic
from wsdsl.simulator.arithmetic import Array
from wsdsl.simulator.context import Warpgroup, shape_of
from wsdsl.simulator.scalar_ops import as_array, finish


def places(wg: Warpgroup, op: Op, index: tuple[Value, ...]) -> list[Array]:
    return [np.asarray(wg.get(v, op), np.int64) for v in index]


def check_pairs(wg: Warpgroup, op: Op, last: Array, vector: int) -> None:
    """A vector access starts at a multiple of its width and takes neighbours."""
    if vector == 1 or last.ndim == 0:
        return
    first = last[..., ::vector]
    rest = last.reshape(*last.shape[:-1], -1, vector) - first[..., None]
    if (first % vector).any() or (rest != np.arange(vector)).any():
        wg.fail(op, f"a vector of {vector} elements is not aligned, or not contiguous")


def load_global(wg: Warpgroup, op: m.LoadGlobal) -> None:
    tensor = wg.cta.arguments.tensors[op.tensor.name]
    index = places(wg, op, op.index)
    check_pairs(wg, op, index[-1], op.vector)
    shape = shape_of(op.result)
    # What is the same in every row or column may be indexed with less than the result's shape.
    small = np.broadcast_shapes(*(i.shape for i in index))
    spread = [np.broadcast_to(i, small) for i in index]
    inside = np.ones(small, np.bool_)
    for i, size in zip(spread, tensor.array.shape, strict=True):
        inside &= (i >= 0) & (i < size)
    held = np.zeros(small, tensor.array.dtype)
    held[inside] = tensor.array[tuple(i[inside] for i in spread)]
    wg.values[op.result.name] = finish(held if shape else held.reshape(()), op.result)


def store_global(wg: Warpgroup, op: m.StoreGlobal) -> None:
    if op.pred is not None and not wg.get(op.pred, op):
        return
    tensor = wg.cta.arguments.tensors[op.tensor.name]
    value = as_array(wg.get(op.value, op), op.value)
    index = places(wg, op, op.index)
    check_pairs(wg, op, index[-1], op.vector)
    shape = np.broadcast_shapes(value.shape, *(i.shape for i in index))
    spread = [np.broadcast_to(i, shape) for i in index]
    inside = np.ones(shape, np.bool_)
    for i, size in zip(spread, tensor.array.shape, strict=True):
        inside &= (i >= 0) & (i < size)
    at = tuple(i[inside] for i in spread)
    value = np.broadcast_to(value, shape)[inside]
    if not op.accumulate:
        tensor.array[at] = value
        return
    wide = np.float64 if tensor.dtype.is_float else np.int64
    flat = np.ravel_multi_index(at, tensor.array.shape)
    found, back = np.unique(flat, return_inverse=True)
    total = np.zeros(found.shape, wide)
    np.add.at(total, back, value.astype(wide))
    there = np.unravel_index(found, tensor.array.shape)
    total += tensor.array[there].astype(wide)
    tensor.array[there] = arithmetic.round_total(total, tensor.dtype)


GLOBAL: dict[type[Op], Callable[[Warpgroup, Any], None]] = {
    m.LoadGlobal: load_global,
    m.StoreGlobal: store_global,
}
