"""Fragments as NumPy arrays, scalars as Python numbers."""

from typing import Any

import numpy as np

from wsdsl.ir.op import Value
from wsdsl.ir.types import Fragment, Tile
from wsdsl.simulator.reference.arithmetic import dtype_of, numpy_dtype, round_float


def finish(value: Any, result: Value) -> Any:
    """A computed array as the result's value: spread over a fragment, or a Python number."""
    shape = shape_of(result)
    return value.item() if shape is None else np.broadcast_to(value, shape)


def as_array(operand: Any, value: Value) -> Any:
    dtype = dtype_of(value)
    if dtype.name == "tf32":
        # Memory keeps the lower bits, which the tensor cores ignore.
        return np.asarray(operand, np.float32)
    if dtype.is_float and not isinstance(operand, np.ndarray):
        result = np.asarray(operand, np.float64)
        # An infinity that the type has, as f8e5m2, is not what `round_float` saturates.
        own = result.astype(numpy_dtype(dtype))
        return own if np.isinf(own) else round_float(result, dtype)
    return np.asarray(operand, numpy_dtype(dtype))


def shape_of(value: Value) -> tuple[int, int] | None:
    """The shape of a fragment, None for a scalar."""
    if isinstance(value.type, Fragment):
        return value.type.rows, value.type.columns
    assert isinstance(value.type, Tile)
    return None
