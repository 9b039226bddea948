"""Slices, joins, layouts and indices of fragments."""

from typing import Any

import numpy as np

from wsdsl.ir import ops
from wsdsl.simulator.reference.fragment_arrays import shape_of
from wsdsl.simulator.warpgroup import Warpgroup


def value_of_slice_columns(wg: Warpgroup, op: ops.SliceColumns) -> Any:
    shape = shape_of(op.result)
    assert shape is not None
    return wg.get(op.x, op)[:, op.start : op.start + shape[1]]


def value_of_join_columns(wg: Warpgroup, op: ops.JoinColumns) -> Any:
    return np.concatenate([wg.get(part, op) for part in op.parts], axis=1)


def value_of_convert_layout(wg: Warpgroup, op: ops.ConvertLayout) -> Any:
    value = wg.get(op.x, op)
    return value if ops.is_same_registers(op) else value.copy()


def value_of_iota(wg: Warpgroup, op: ops.Iota) -> Any:
    shape = shape_of(op.result)
    assert shape is not None
    steps = np.arange(max(shape), dtype=np.int32).reshape(shape)
    if shape[1] == 1 < shape[0]:
        steps = steps + steps // 16 * np.int32(op.apart - 16)
    return steps + np.int32(wg.get(op.start, op))
