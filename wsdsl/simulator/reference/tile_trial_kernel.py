"""The kernel of a tile-size trial: all floats have 64 bits, so that rounding hides nothing."""

import dataclasses
from collections.abc import Iterator
from typing import Any, TypeGuard

import numpy as np

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Region, Value, operands
from wsdsl.ir.rewriter import Namer, definitions, retype, with_regions
from wsdsl.ir.types import DTYPES, Tensor, Tile
from wsdsl.simulator.reference.arithmetic import F64, dtype_of, numpy_dtype, reinterpret
from wsdsl.simulator.reference.bound_arrays import unpack_nibbles


def in_double(kernel: Kernel) -> Kernel:
    """The kernel with all floats, its parameters' too, of 64 bits. A `bitcast` is of the bits that
    the value has in its own type. Floats that are stored as integers or bools stay floats:
    saturated values, and numbers other than 0, hide how they differ.
    """
    namer = Namer.of(kernel)
    rounded = _rounded(kernel)
    body = _unrounded(_with_own_bits(kernel.body, namer), kernel, rounded)
    swap = {v: Value(v.name, _doubled(v.type)) for v in definitions(kernel)}
    swap |= {p: Value(p.name, dataclasses.replace(p.type, dtype=F64)) for p in rounded}
    params = tuple(swap[p] for p in kernel.params)
    return dataclasses.replace(kernel, params=params, body=retype(body, swap))


def _rounded(kernel: Kernel) -> set[Value]:
    """Tensors of integers or bools that only stores of floats access."""
    tensors = {p for p in kernel.params if isinstance(p.type, Tensor) and not is_packed(p.type)}
    result = {p for p in tensors if not p.as_tensor.dtype.is_float}
    for op in kernel.ops:
        match op:
            case ops.Store(accumulate=False) if dtype_of(_before_cast(op.value, kernel)).is_float:
                pass
            case _:
                result -= {*operands(op)}
    return result


def _before_cast(value: Value, kernel: Kernel) -> Value:
    result = kernel.definers.get(value)
    return result.x if isinstance(result, ops.Cast) else value


def _unrounded(region: Region, kernel: Kernel, rounded: set[Value]) -> Region:
    def changed(op: Op) -> Op:
        op = with_regions(op, lambda inner: _unrounded(inner, kernel, rounded))
        if isinstance(op, ops.Store) and op.tensor in rounded:
            return dataclasses.replace(op, value=_before_cast(op.value, kernel))
        return op

    return tuple(changed(op) for op in region)


def _doubled(kind: Any) -> Any:
    if isinstance(kind, (Tile, Tensor)) and kind.dtype.is_float:
        return dataclasses.replace(kind, dtype=F64)
    return kind


def _with_own_bits(region: Region, namer: Namer) -> Region:
    def changed(op: Op) -> Iterator[Op]:
        op = with_regions(op, lambda inner: _with_own_bits(inner, namer))
        if not isinstance(op, ops.Bitcast):
            yield op
            return
        x, result = op.x, op.result
        if dtype_of(x).is_float:
            x = Value(namer.new("own"), x.type)
            yield ops.Cast(result=x, x=op.x, loc=op.loc)
        if dtype_of(result).is_float:
            result = Value(namer.new("own"), result.type)
        yield dataclasses.replace(op, x=x, result=result)
        if result != op.result:
            yield ops.Cast(result=op.result, x=result, loc=op.loc)

    return tuple(new for op in region for new in changed(op))


def is_packed(kind: Any) -> TypeGuard[Tensor]:
    return isinstance(kind, Tensor) and kind.dtype.bits == 4


def as_double(param: Value, exact: Value, value: Any) -> Any:
    """The type is that of the parameter as `in_double` has it."""
    if isinstance(param.type, Tile):
        return value
    array, dtype = np.asarray(value), param.as_tensor.dtype
    if not dtype.is_float:
        return array.astype(numpy_dtype(dtype_of(exact)))
    if array.dtype == np.uint8:
        bits = unpack_nibbles(array, dtype, 2 * array.shape[-1]) if dtype.bits == 4 else array
        array = reinterpret(bits.view(np.uint8), DTYPES["u8"], dtype)
    return array.astype(np.float64)
