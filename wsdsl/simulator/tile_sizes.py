"""Whether the size of a tile shows in what a TILE kernel computes: it is tried out.

The kernel is evaluated on small random arrays, with tiles of 1, 2, ... elements of one axis, and
with one tile for all of it. Floats are computed in 64 bits, and hold eighths, so that sums come out
the same in any order: what differs by more than a billionth differs because of the tiles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from wsdsl.ir import tile_ops as t
from wsdsl.ir.op import Kernel, Op, Region, Value
from wsdsl.ir.types import DType, Tensor, Tile
from wsdsl.ir.walk import Namer, definitions, retype, with_regions
from wsdsl.simulator.arithmetic import F64, Array, integer_range, numpy_dtype
from wsdsl.simulator.reference import evaluate

TRIALS = 3
LARGEST = 8
"""Elements of a dimension, at most."""
LARGEST_FIXED = 64
"""Of a dimension whose size the kernel says: no loop walks it, and what lies beyond is 0."""
ONE_TILE = 1 << 40
TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True)
class Shown:
    """An axis the size of whose tiles shows. `nan`: some of them give NaN, others a number."""

    axis: str
    nan: bool


def find_shown(kernel: Kernel, axes: Sequence[str]) -> Shown | None:
    """The first of `axes` of which the size of the tiles shows, on arrays made here."""
    exact = in_double(kernel)
    for trial in range(TRIALS):
        rng = np.random.default_rng(trial)
        small, arrays = _random_arrays(exact, rng)
        if shown := _compare(small, arrays, axes, (1, 2, int(rng.integers(3, LARGEST)))):
            return shown
    return None


def find_shown_on(kernel: Kernel, arrays: Mapping[str, Any], axes: Sequence[str]) -> Shown | None:
    """The same on given arrays, with two sizes of tiles drawn by their contents' sizes."""
    double = {p.name: _as_double(p, arrays[p.name]) for p in kernel.params}
    rng = np.random.default_rng(len(axes))
    sizes = tuple(int(n) for n in rng.integers(17, 300, size=2))
    return _compare(in_double(kernel), double, axes, sizes)


def _compare(
    kernel: Kernel, arrays: Mapping[str, Any], axes: Sequence[str], sizes: Sequence[int]
) -> Shown | None:
    expected = _evaluated(kernel, arrays, dict.fromkeys(axes, ONE_TILE))
    for axis in axes:
        for size in sizes:
            others = dict.fromkeys(axes, ONE_TILE)
            found = _evaluated(kernel, arrays, others | {axis: size})
            for name, held in found.items():
                if held.dtype != np.float64:
                    if not np.array_equal(held, expected[name]):
                        return Shown(axis, nan=False)
                elif not np.array_equal(np.isnan(held), np.isnan(expected[name])):
                    return Shown(axis, nan=True)
                elif not np.allclose(held, expected[name], TOLERANCE, TOLERANCE, equal_nan=True):
                    return Shown(axis, nan=False)
    return None


def _evaluated(
    kernel: Kernel, arrays: Mapping[str, Any], tile: Mapping[str, int]
) -> dict[str, Array]:
    own = {n: np.array(a) if isinstance(a, np.ndarray) else a for n, a in arrays.items()}
    with np.errstate(all="ignore"):
        evaluate(kernel, own, tile)
    return {n: a for n, a in own.items() if isinstance(a, np.ndarray)}


# A kernel that computes in 64 bits ----------------------------------------------------------------


def in_double(kernel: Kernel) -> Kernel:
    """The kernel with all floats, its parameters' too, of 64 bits. A `bitcast` is of the bits that
    the value has in its own type.
    """
    namer = Namer.of(kernel)
    body = _with_own_bits(kernel.body, namer)
    swap = {v: Value(v.name, _doubled(v.type)) for v in definitions(kernel)}
    params = tuple(Value(p.name, _doubled(p.type)) for p in kernel.params)
    swap |= dict(zip(kernel.params, params))
    return dataclasses.replace(kernel, params=params, body=retype(body, swap))


def _doubled(kind: Any) -> Any:
    if isinstance(kind, (Tile, Tensor)) and kind.dtype.is_float:
        return dataclasses.replace(kind, dtype=F64)
    return kind


def _with_own_bits(region: Region, namer: Namer) -> Region:
    def changed(op: Op) -> Iterator[Op]:
        op = with_regions(op, lambda inner: _with_own_bits(inner, namer))
        if not isinstance(op, t.Bitcast):
            yield op
            return
        x, made = op.x, op.result
        if _dtype(x).is_float:
            x = Value(namer.new("own"), x.type)
            yield t.Cast(result=x, x=op.x, loc=op.loc)
        if _dtype(made).is_float:
            made = Value(namer.new("own"), made.type)
        yield dataclasses.replace(op, x=x, result=made)
        if made != op.result:
            yield t.Cast(result=op.result, x=made, loc=op.loc)

    return tuple(new for op in region for new in changed(op))


def _dtype(value: Value) -> DType:
    assert isinstance(value.type, (Tile, Tensor))
    return value.type.dtype


# Its arrays ---------------------------------------------------------------------------------------


def _random_arrays(kernel: Kernel, rng: np.random.Generator) -> tuple[Kernel, dict[str, Any]]:
    """The kernel with small sizes for what it fixes, and arguments for it."""
    sizes: dict[str, int] = {}
    arrays: dict[str, Any] = {}
    packed = {p.type.dims[-1] for p in kernel.params if _is_packed(p.type)}
    for p in kernel.params:
        if isinstance(p.type, Tile):
            arrays[p.name] = _values(p.type.dtype, (), rng).item()
            continue
        assert isinstance(p.type, Tensor)
        shape: list[int] = []
        for dim in p.type.dims:
            if isinstance(dim, int):
                shape.append(min(dim, LARGEST_FIXED))
            else:
                size = int(rng.integers(2, LARGEST))
                shape.append(sizes.setdefault(dim, size & ~1 if dim in packed else size))
        if _is_packed(p.type):
            shape[-1] = (shape[-1] + 1) // 2
            arrays[p.name] = rng.integers(0, 256, size=shape).astype(np.uint8)
        else:
            arrays[p.name] = _values(p.type.dtype, tuple(shape), rng)
    small = {p: Value(p.name, _small(p.type)) for p in kernel.params}
    body = retype(kernel.body, small)
    return dataclasses.replace(kernel, params=tuple(small.values()), body=body), arrays


def _is_packed(kind: Any) -> TypeGuard[Tensor]:
    return isinstance(kind, Tensor) and kind.dtype.bits == 4


def _small(kind: Any) -> Any:
    if not isinstance(kind, Tensor):
        return kind
    dims = tuple(min(d, LARGEST_FIXED) if isinstance(d, int) else d for d in kind.dims)
    return dataclasses.replace(kind, dims=dims)


def _values(dtype: DType, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Eighths; of integers half are small, as indices are, and half of any size."""
    if dtype.is_float:
        return rng.integers(-16, 17, size=shape) / np.float64(8)
    if dtype.kind == "bool":
        return rng.integers(0, 2, size=shape).astype(np.bool_)
    low, high = integer_range(dtype)
    small = rng.integers(0, min(high, LARGEST), size=shape)
    large = rng.integers(low, high, size=shape, endpoint=True)
    chosen = np.where(rng.integers(0, 2, size=shape) == 0, small, large)
    return np.asarray(chosen).astype(numpy_dtype(dtype))


def _as_double(param: Value, held: Any) -> Any:
    if isinstance(param.type, Tile):
        return held
    assert isinstance(param.type, Tensor)
    array = np.asarray(held)
    return array.astype(np.float64) if param.type.dtype.is_float else array
