"""Elementwise ops: scalars are Python numbers, fragments NumPy arrays."""

from collections.abc import Callable
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.integers import ON_INTEGERS
from wsdsl.simulator.reference.arithmetic import apply, convert, dtype_of, reinterpret, round_float
from wsdsl.simulator.reference.fragment_arrays import as_array, finish
from wsdsl.simulator.warpgroup import Warpgroup

I32_FAST: dict[str, Callable[[int, int], int]] = {
    **ON_INTEGERS,
    "floordiv": lambda x, y: x // y if y else 0,
    "mod": lambda x, y: x % y if y else 0,
}


def value_of_map(wg: Warpgroup, op: ops.Map) -> Any:
    values = [wg.get(a, op) for a in op.args]
    dtype = dtype_of(op.args[-1])
    if dtype.name == "i32" and op.fn in I32_FAST and all(type(h) is int for h in values):
        result = I32_FAST[op.fn](values[0], values[1])
        if type(result) is int and not -(1 << 31) <= result < 1 << 31:
            result = (result + (1 << 31)) % (1 << 32) - (1 << 31)
        return result
    arrays = [as_array(h, v) for h, v in zip(values, op.args, strict=True)]
    result = apply(op.fn, arrays, dtype, dtype_of(op.result))
    return finish(result, op.result)


def value_of_cast(wg: Warpgroup, op: ops.Cast) -> Any:
    value = as_array(wg.get(op.x, op), op.x)
    result = convert(value, dtype_of(op.x), dtype_of(op.result), op.saturate)
    return finish(result, op.result)


def value_of_bitcast(wg: Warpgroup, op: ops.Bitcast) -> Any:
    value = as_array(wg.get(op.x, op), op.x)
    return finish(reinterpret(value, dtype_of(op.x), dtype_of(op.result)), op.result)


def value_of_constant(wg: Warpgroup, op: ops.Constant) -> Any:
    value, dtype = as_array(op.value, op.result), dtype_of(op.result)
    return (round_float(value, dtype) if dtype.is_float else value).item()


def value_of_full(wg: Warpgroup, op: ops.Full) -> Any:
    return finish(as_array(wg.get(op.value, op), op.value), op.result)


def value_of_dim_size(wg: Warpgroup, op: ops.DimSize) -> Any:
    return wg.cta.arguments.size(op.dim)
