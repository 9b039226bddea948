"""The arrays of a tile-size trial: small, random, with the numbers in a kernel's comparisons."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, OneResult, Op, Value, operands
from wsdsl.ir.rewriter import definitions, made_of, retype, rewrite, walk
from wsdsl.ir.types import I32, Axis, DType, Sizes, Tensor, Tile
from wsdsl.simulator.reference.arithmetic import Array, dtype_of, numpy_dtype
from wsdsl.simulator.reference.tile_trial_kernel import is_packed

TRIALS = 4
LARGEST = 8
"""Elements of a dimension, at most."""
LARGEST_FIXED = 64
"""Of a dimension whose size the kernel says: no loop walks it, and what lies beyond is 0."""
LARGEST_REACH = 1 << 18
"""Bounds the product of all dimensions whose indices must exceed a number."""
LARGEST_DRAWN = 2.0
"""Of floats, times their scale."""
BOUNDED = (*ops.COMPARISONS, "min", "max")


@dataclasses.dataclass(frozen=True)
class Draw:
    """Floats are eighths times `scale`. Integers are less than `most`, or with `LARGEST` half of
    them of any size; of those under 2 all are indices. With `near`, half of the integers are from
    there, and a quarter of the floats. Floats are `signed`, except where results that
    are not finite may hide what differs. `beyond`: elements to add, by dimension.
    """

    scale: float = 1.0
    most: int = LARGEST
    near: tuple[float, ...] = ()
    signed: bool = True
    sign: int = 1
    """Of scalars; integers are as large as any where it is positive."""
    beyond: Sizes = dataclasses.field(default_factory=dict)


def bounds(kernel: Kernel) -> tuple[float, ...]:
    """Powers of two below the numbers that a kernel compares with, the first of them: sums of
    values of that size get across such a bound in some tiles.
    """
    members = [*walk(kernel.body)]
    compared = {
        v for op in members if isinstance(op, ops.Map) and op.fn in BOUNDED for v in op.args
    }
    numbers = [
        abs(float(op.value))
        for op in members
        if isinstance(op, ops.Constant) and op.result in compared and dtype_of(op.result).is_float
    ]
    usual = dict.fromkeys(2.0 ** round(np.log2(n)) for n in numbers if 4 < n < 2.0**100)
    return tuple(n / part for n in [*usual][:TRIALS] for part in (1, 2, 4))


def near_compared(kernel: Kernel) -> tuple[float, ...]:
    """The numbers in the operands of comparisons, and each plus and minus 1: a branch may be taken
    for values from memory that equal one of them, and for no others. Also NaN, if the kernel tests
    for NaN as `argmax` does, with the largest and the smallest drawn number, for ties.
    """
    results: dict[float, None] = {}
    compared = [op for op in kernel.of(ops.Map) if op.fn in ops.COMPARISONS]
    counted = values_in_results(kernel)
    start = [v for op in compared if op.result in counted for v in op.args]
    kinds = (ops.Map, ops.Cast, ops.Full)
    for _, op in made_of(start, kernel.definers, lambda op: isinstance(op, kinds)):
        if isinstance(op, ops.Constant) and not isinstance(op.value, bool):
            number = float(op.value)
            if np.isfinite(number):
                results |= dict.fromkeys((number, number - 1, number + 1))
    # A value that is compared with itself: only NaN differs.
    if any(op.fn in ("eq", "ne") and op.args[0] == op.args[1] for op in kernel.of(ops.Map)):
        results |= dict.fromkeys((np.nan, -LARGEST_DRAWN, LARGEST_DRAWN))
    return tuple(results)


def reach(kernel: Kernel) -> dict[str, int]:
    """The largest number that indices of a dimension are compared with, or computed with for that,
    or at which loops begin and end: in smaller arrays all are on one side of it. Numbers that are
    too large for a trial are left out.
    """
    known: dict[Value, tuple[frozenset[str], int]] = {}
    results: dict[str, int] = {}
    for op in kernel.ops:
        parts = [known[v] for v in operands(op) if v in known]
        dims = frozenset(dim for of_one, _ in parts for dim in of_one)
        number = max((n for _, n in parts), default=0)
        match op:
            case ops.Constant(value=int(value)):
                number = abs(value)
            case ops.Index(axis=axis) | ops.End(axis=axis) | ops.Block(axis=axis):
                dims, number = frozenset((axis.as_axis.dim,)), getattr(op, "size", 0)
            case ops.Map(fn="floordiv" | "mod"):
                number = math.prod(n + 1 for _, n in parts)
            case ops.ForTiles():
                dims |= {op.index.as_axis.dim}
            case _:
                if not isinstance(op, ops.Map | ops.Cast | ops.Full):
                    continue
        number = min(number, LARGEST_REACH)
        if isinstance(op, OneResult):
            known[op.result] = dims, number
        results |= {dim: max(number, results.get(dim, 0)) for dim in dims if number}
    most = LARGEST_REACH ** (1 / max(1, len(results)))
    return {dim: n for dim, n in results.items() if 2 * n <= most}


def values_in_results(kernel: Kernel) -> set[Value]:
    """Values that do more than tell where something is loaded, which is the same for all tiles."""
    result: set[Value] = set()
    for op in reversed(kernel.ops):
        if isinstance(op, ops.Map | ops.Cast) and op.result not in result:
            continue
        used = operands(op)
        result |= {v for v in used if not isinstance(op, ops.Load) or v.type != Tile(I32)}
    return result


def random_arrays(
    kernel: Kernel, rng: np.random.Generator, draw: Draw, scalars: Mapping[str, Any]
) -> tuple[Kernel, dict[str, Any]]:
    """The kernel with small sizes for what it fixes, and arguments for it."""
    sizes: dict[str, int] = {}
    arrays: dict[str, Any] = {}
    packed = {p.type.dims[-1] for p in kernel.params if is_packed(p.type)}
    axes = {v.type.dim for v in definitions(kernel) if isinstance(v.type, Axis)}
    axes |= {
        p.type.dims[0]
        for p in kernel.params
        if isinstance(p.type, Tensor) and len(p.type.dims) == 1
    }
    few = {op.dim for op in kernel.of(ops.ForEach) if not op.init} - axes - packed
    for p in kernel.params:
        if isinstance(p.type, Tile):
            asked = p.name in scalars
            own = dataclasses.replace(draw, near=(), sign=1) if asked else draw
            result = _values(p.type.dtype, (), rng, own).item()
            if p.type.dtype.is_float:
                result = (abs(result) or 1.0) * own.sign
            elif own.sign >= 0 and not draw.near and p.type.dtype.kind != "bool":
                # A loop from there on has all, and one up to there has some.
                result = own.most * own.sign
            arrays[p.name] = result if scalars.get(p.name) is None else scalars[p.name]
            continue
        shape: list[int] = []
        for dim in p.as_tensor.dims:
            if isinstance(dim, int):
                shape.append(min(dim, LARGEST_FIXED))
            else:
                size = int(rng.integers(*((1, 3) if dim in few else (2, LARGEST))))
                size += 2 * draw.beyond.get(dim, 0)
                shape.append(sizes.setdefault(dim, size & ~1 if dim in packed else size))
        if is_packed(p.as_tensor):
            shape[-1] = (shape[-1] + 1) // 2
            arrays[p.name] = rng.integers(0, 256, size=shape).astype(np.uint8)
        else:
            arrays[p.name] = _values(p.as_tensor.dtype, tuple(shape), rng, draw)
    small = {p: Value(p.name, _small(p.type)) for p in kernel.params}
    body = rewrite(retype(kernel.body, small), _with_small_blocks)
    return dataclasses.replace(kernel, params=tuple(small.values()), body=body), arrays


def _with_small_blocks(op: Op) -> tuple[Op]:
    """Reduce the block size, so that small arrays have several blocks."""
    if isinstance(op, ops.ReduceBlocks):
        return (dataclasses.replace(op, size=min(op.size, 2)),)
    return (op,)


def _small(kind: Any) -> Any:
    if not isinstance(kind, Tensor):
        return kind
    dims = tuple(min(d, LARGEST_FIXED) if isinstance(d, int) else d for d in kind.dims)
    return dataclasses.replace(kind, dims=dims)


def _values(dtype: DType, shape: tuple[int, ...], rng: np.random.Generator, draw: Draw) -> Array:
    if dtype.kind == "bool":
        return rng.integers(0, 2, size=shape).astype(np.bool_)
    if dtype.is_float:
        eighths = round(8 * LARGEST_DRAWN)
        least = -eighths if draw.signed else 1
        result = rng.integers(least, eighths + 1, size=shape) * np.float64(draw.scale / 8)
        return _some_of(result, draw.near, 4, rng)
    low, high = dtype.limits
    result = rng.integers(0, min(high, draw.most), size=shape)
    if draw.most == LARGEST:
        large = rng.integers(low, high, size=shape, endpoint=True)
        result = np.where(rng.integers(0, 2, size=shape) == 0, result, large)
    near = tuple(n for n in draw.near if n.is_integer() and low <= n <= high)
    return np.asarray(_some_of(result, near, 2, rng)).astype(numpy_dtype(dtype))


def _some_of(
    result: Array, numbers: Sequence[float], one_of: int, rng: np.random.Generator
) -> Array:
    """The array with one in `one_of` elements replaced by one of the numbers."""
    if not numbers:
        return result
    chosen = rng.choice(np.asarray(numbers, dtype=result.dtype), size=result.shape)
    return np.where(rng.integers(0, one_of, size=result.shape) == 0, chosen, result)
