"""Arithmetic of the SCHEDULED level: scalars are Python numbers, fragments NumPy arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from wsdsl.ir import ops
from wsdsl.ir.integers import ON_INTEGERS
from wsdsl.ir.op import Op, Value, by_op
from wsdsl.simulator.reference import arithmetic
from wsdsl.simulator.reference.arithmetic import dtype_of, numpy_dtype
from wsdsl.simulator.warpgroup import State, Warpgroup, shape_of

I32_FAST: dict[str, Callable[[int, int], int]] = {
    **ON_INTEGERS,
    "floordiv": lambda x, y: x // y if y else 0,
    "mod": lambda x, y: x % y if y else 0,
}


def finish(held: Any, result: Value) -> Any:
    """A computed array as the result's value: spread over a fragment, or a Python number."""
    shape = shape_of(result)
    return held.item() if shape is None else np.broadcast_to(held, shape)


def as_array(held: Any, value: Value) -> Any:
    dtype = dtype_of(value)
    if dtype.name == "tf32":
        # What memory holds has its lower bits until the tensor cores ignore them.
        return np.asarray(held, np.float32)
    if dtype.is_float and not isinstance(held, np.ndarray):
        made = np.asarray(held, np.float64)
        # An infinity that the type has, as f8e5m2, is not what `round_float` saturates.
        own = made.astype(numpy_dtype(dtype))
        return own if np.isinf(own) else arithmetic.round_float(made, dtype)
    return np.asarray(held, numpy_dtype(dtype))


def map_values(wg: Warpgroup, op: ops.Map) -> Any:
    held = [wg.get(a, op) for a in op.args]
    dtype = dtype_of(op.args[-1])
    if dtype.name == "i32" and op.fn in I32_FAST and all(type(h) is int for h in held):
        made = I32_FAST[op.fn](held[0], held[1])
        if type(made) is int and not -(1 << 31) <= made < 1 << 31:
            made = (made + (1 << 31)) % (1 << 32) - (1 << 31)
        return made
    arrays = [as_array(h, v) for h, v in zip(held, op.args, strict=True)]
    made = arithmetic.apply(op.fn, arrays, dtype, dtype_of(op.result))
    return finish(made, op.result)


def cast(wg: Warpgroup, op: ops.Cast) -> Any:
    held = as_array(wg.get(op.x, op), op.x)
    made = arithmetic.convert(held, dtype_of(op.x), dtype_of(op.result), op.saturate)
    return finish(made, op.result)


def bitcast(wg: Warpgroup, op: ops.Bitcast) -> Any:
    held = as_array(wg.get(op.x, op), op.x)
    return finish(arithmetic.reinterpret(held, dtype_of(op.x), dtype_of(op.result)), op.result)


def constant(wg: Warpgroup, op: ops.Constant) -> Any:
    held, dtype = as_array(op.value, op.result), dtype_of(op.result)
    return (arithmetic.round_float(held, dtype) if dtype.is_float else held).item()


def full(wg: Warpgroup, op: ops.Full) -> Any:
    return finish(as_array(wg.get(op.value, op), op.value), op.result)


def zero_unless(wg: Warpgroup, op: ops.ZeroUnless) -> Any:
    zero = np.zeros(shape_of(op.result) or (), numpy_dtype(dtype_of(op.result)))
    return wg.get(op.x, op) if wg.get(op.cond, op) else finish(zero, op.result)


def slice_columns(wg: Warpgroup, op: ops.Slice) -> Any:
    shape = shape_of(op.result)
    assert shape is not None
    return wg.get(op.x, op)[:, op.start : op.start + shape[1]]


def join(wg: Warpgroup, op: ops.Join) -> Any:
    return np.concatenate([wg.get(part, op) for part in op.parts], axis=1)


def convert_layout(wg: Warpgroup, op: ops.ConvertLayout) -> Any:
    held = wg.get(op.x, op)
    return held if ops.is_same_registers(op) else held.copy()


def reduce_columns(wg: Warpgroup, op: ops.ReduceColumns) -> Any:
    held = wg.get(op.x, op)
    if op.size:
        made = arithmetic.reduce_blocks(op.fn, held, dtype_of(op.x), 1, op.size)
        return finish(made, op.result)
    made = arithmetic.reduce(op.fn, held, dtype_of(op.x), 1)
    return finish(made.reshape(-1, 1), op.result)


def mma_sync(wg: Warpgroup, op: ops.MmaSync) -> Any:
    rows, vector = (np.concatenate([wg.get(v, op) for v in x], axis=1) for x in (op.a, op.b))
    return finish(rows.astype(np.float32) @ vector.astype(np.float32).T, op.result)


def scan_columns(wg: Warpgroup, op: ops.ScanColumns) -> Any:
    return finish(arithmetic.scan(wg.get(op.x, op), dtype_of(op.x), 1), op.result)


def iota(wg: Warpgroup, op: ops.Iota) -> Any:
    shape = shape_of(op.result)
    assert shape is not None
    steps = np.arange(max(shape), dtype=np.int32).reshape(shape)
    if shape[1] == 1 < shape[0]:
        steps = steps + steps // 16 * np.int32(op.apart - 16)
    return steps + np.int32(wg.get(op.start, op))


def advance(wg: Warpgroup, op: ops.Advance) -> Any:
    before: State = wg.values[op.state.name]
    wraps = before.stage + 1 == op.num
    return State(0, before.parity ^ 1) if wraps else State(before.stage + 1, before.parity)


VALUES: dict[type[Op], Callable[[Warpgroup, Any], Any]] = {
    ops.Map: map_values,
    ops.DimSize: lambda wg, op: wg.cta.arguments.size(op.dim),
    ops.Slice: slice_columns,
    ops.CtaIndex: lambda wg, _: wg.cta.index,
    ops.NumCtas: lambda wg, _: wg.cta.num_ctas,
    ops.ClusterIndex: lambda wg, _: wg.cta.cluster.index,
    ops.NumClusters: lambda wg, _: wg.cta.cluster.num_clusters,
    ops.CtaRank: lambda wg, _: wg.cta.rank,
    ops.WarpgroupIndex: lambda wg, _: wg.rank,
    ops.InitialState: lambda _, op: State(0, op.parity),
    **by_op(sys.modules[__name__]),
}
"""The result of ops that neither wait nor touch memory."""


def assign(wg: Warpgroup, op: Any) -> bool:
    """Give the result of an op in `VALUES` its value; False for another op."""
    value_of = VALUES.get(type(op))
    if value_of is not None:
        wg.values[op.result.name] = value_of(wg, op)
    return value_of is not None
