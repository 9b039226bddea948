"""Arithmetic of the SCHEDULED level: scalars are Python numbers, fragments NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wsdsl.ir import barrier_ops as b
from wsdsl.ir import fragment_ops as f
from wsdsl.ir import tile_ops as t
from wsdsl.ir.op import Op, Value
from wsdsl.ir.types import Accumulator, DType, Fragment, Tile
from wsdsl.simulator import arithmetic
from wsdsl.simulator.arithmetic import numpy_dtype
from wsdsl.simulator.context import State, Warpgroup, shape_of

I32_FAST: dict[str, Callable[[int, int], int]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "floordiv": lambda x, y: x // y if y else 0,
    "mod": lambda x, y: x % y if y else 0,
    "min": min,
    "max": max,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "ge": lambda x, y: x >= y,
    "gt": lambda x, y: x > y,
}


def dtype_of(value: Value) -> DType:
    assert isinstance(value.type, (Tile, Fragment, Accumulator))
    return value.type.dtype


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
        return arithmetic.round_float(np.asarray(held, np.float64), dtype)
    return np.asarray(held, numpy_dtype(dtype))


def map_values(wg: Warpgroup, op: t.Map) -> None:
    held = [wg.get(a, op) for a in op.args]
    dtype = dtype_of(op.args[-1])
    if dtype.name == "i32" and op.fn in I32_FAST and all(type(h) is int for h in held):
        made = I32_FAST[op.fn](held[0], held[1])
        if type(made) is int and not -(1 << 31) <= made < 1 << 31:
            made = (made + (1 << 31)) % (1 << 32) - (1 << 31)
        wg.values[op.result.name] = made
        return
    arrays = [as_array(h, v) for h, v in zip(held, op.args, strict=True)]
    made = arithmetic.apply(op.fn, arrays, dtype, dtype_of(op.result))
    wg.values[op.result.name] = finish(made, op.result)


def cast(wg: Warpgroup, op: t.Cast) -> None:
    held = as_array(wg.get(op.x, op), op.x)
    made = arithmetic.convert(held, dtype_of(op.x), dtype_of(op.result), op.saturate)
    wg.values[op.result.name] = finish(made, op.result)


def bitcast(wg: Warpgroup, op: t.Bitcast) -> None:
    held = as_array(wg.get(op.x, op), op.x)
    made = arithmetic.reinterpret(held, dtype_of(op.x), dtype_of(op.result))
    wg.values[op.result.name] = finish(made, op.result)


def constant(wg: Warpgroup, op: t.Constant) -> None:
    held, dtype = as_array(op.value, op.result), dtype_of(op.result)
    made = arithmetic.round_float(held, dtype) if dtype.is_float else held
    wg.values[op.result.name] = made.item()


def full(wg: Warpgroup, op: t.Full) -> None:
    held = as_array(wg.get(op.value, op), op.value)
    wg.values[op.result.name] = finish(held, op.result)


def dim_size(wg: Warpgroup, op: t.DimSize) -> None:
    wg.values[op.result.name] = wg.cta.arguments.size(op.dim)


def zero_unless(wg: Warpgroup, op: f.ZeroUnless) -> None:
    shape = shape_of(op.result)
    zero = np.zeros(shape or (), numpy_dtype(dtype_of(op.result)))
    wg.values[op.result.name] = wg.get(op.x, op) if wg.get(op.cond, op) else finish(zero, op.result)


def slice_columns(wg: Warpgroup, op: f.Slice) -> None:
    shape = shape_of(op.result)
    assert shape is not None
    wg.values[op.result.name] = wg.get(op.x, op)[:, op.start : op.start + shape[1]]


def join(wg: Warpgroup, op: f.Join) -> None:
    parts = [wg.get(part, op) for part in op.parts]
    wg.values[op.result.name] = np.concatenate(parts, axis=1)


def convert_layout(wg: Warpgroup, op: f.ConvertLayout) -> None:
    held = wg.get(op.x, op)
    wg.values[op.result.name] = held if f.is_same_registers(op) else held.copy()


def reduce_columns(wg: Warpgroup, op: f.ReduceColumns) -> None:
    held = wg.get(op.x, op)
    if op.size:
        made = arithmetic.reduce_blocks(op.fn, held, dtype_of(op.x), 1, op.size)
        wg.values[op.result.name] = finish(made, op.result)
        return
    made = arithmetic.reduce(op.fn, held, dtype_of(op.x), 1)
    wg.values[op.result.name] = finish(made.reshape(-1, 1), op.result)


def scan_columns(wg: Warpgroup, op: f.ScanColumns) -> None:
    made = arithmetic.scan(wg.get(op.x, op), dtype_of(op.x), 1)
    wg.values[op.result.name] = finish(made, op.result)


def iota(wg: Warpgroup, op: f.Iota) -> None:
    shape = shape_of(op.result)
    assert shape is not None
    steps = np.arange(max(shape), dtype=np.int32).reshape(shape)
    if shape[1] == 1 < shape[0]:
        steps = steps + steps // 16 * np.int32(op.apart - 16)
    wg.values[op.result.name] = steps + np.int32(wg.get(op.start, op))


def cta_index(wg: Warpgroup, op: b.CtaIndex) -> None:
    wg.values[op.result.name] = wg.cta.index


def num_ctas(wg: Warpgroup, op: b.NumCtas) -> None:
    wg.values[op.result.name] = wg.cta.num_ctas


def cluster_index(wg: Warpgroup, op: b.ClusterIndex) -> None:
    wg.values[op.result.name] = wg.cta.cluster.index


def num_clusters(wg: Warpgroup, op: b.NumClusters) -> None:
    wg.values[op.result.name] = wg.cta.cluster.num_clusters


def cta_rank(wg: Warpgroup, op: b.CtaRank) -> None:
    wg.values[op.result.name] = wg.cta.rank


def warpgroup_index(wg: Warpgroup, op: b.WarpgroupIndex) -> None:
    wg.values[op.result.name] = wg.rank


def initial_state(wg: Warpgroup, op: b.InitialState) -> None:
    wg.values[op.result.name] = State(0, op.parity)


def advance(wg: Warpgroup, op: b.Advance) -> None:
    before: State = wg.values[op.state.name]
    wraps = before.stage + 1 == op.num
    after = State(0, before.parity ^ 1) if wraps else State(before.stage + 1, before.parity)
    wg.values[op.result.name] = after


def nothing(wg: Warpgroup, op: Op) -> None:
    del wg, op


SIMPLE: dict[type[Op], Callable[[Warpgroup, Any], None]] = {
    t.Map: map_values,
    t.Cast: cast,
    t.Bitcast: bitcast,
    t.Constant: constant,
    t.Full: full,
    t.DimSize: dim_size,
    f.ZeroUnless: zero_unless,
    f.Join: join,
    f.ConvertLayout: convert_layout,
    f.Slice: slice_columns,
    f.ReduceColumns: reduce_columns,
    f.ScanColumns: scan_columns,
    f.Iota: iota,
    b.CtaIndex: cta_index,
    b.NumCtas: num_ctas,
    b.ClusterIndex: cluster_index,
    b.NumClusters: num_clusters,
    b.CtaRank: cta_rank,
    b.WarpgroupIndex: warpgroup_index,
    b.InitialState: initial_state,
    b.Advance: advance,
    b.LaunchGrid: nothing,
    b.WaitPredecessor: lambda wg, op: wg.effect(op, "wait", "grid", wg.actors),
    b.LaunchDependents: lambda wg, op: wg.effect(op, "arrive", "grid", wg.actors),
}
"""Ops that neither wait nor touch memory."""
