"""Whether the size of a tile shows in what a TILE kernel computes: it is tried out.

The kernel is evaluated on small random arrays, with tiles of 1, 2, ... elements of one axis, and
with one tile for all of it. Floats are computed in 64 bits, and hold eighths, so that sums come out
the same in any order: what differs by more than a billionth differs because of the tiles.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from wsdsl.ir import tile_ops as t
from wsdsl.ir.op import Kernel, OneResult, Op, Region, Value, operands
from wsdsl.ir.types import BOOL, DTYPES, I32, Axis, DType, Tensor, Tile
from wsdsl.ir.walk import Namer, definitions, retype, rewrite, walk, with_regions
from wsdsl.simulator.arithmetic import F64, Array, integer_range, numpy_dtype, reinterpret
from wsdsl.simulator.arrays import unpack_nibbles
from wsdsl.simulator.reference import dtype_of, evaluate

TRIALS = 4
LARGEST = 8
"""Elements of a dimension, at most."""
LARGEST_FIXED = 64
"""Of a dimension whose size the kernel says: no loop walks it, and what lies beyond is 0."""
LARGEST_REACH = 1 << 18
"""The product of what dimensions need for indices to get beyond the numbers they meet."""
LARGEST_DRAWN = 2.0
"""Of floats, times their scale."""
ONE_SIGN = (1.0, 0.5, 16.0, -1.0)
"""Scales of floats of one sign, tried until results are finite: for logarithms and roots."""
SIGNS = 1, -1, 0
TILES = 64
"""Of arrays in which indices get beyond numbers, at most, by all axes together."""
ONE_TILE = 1 << 40
BOUNDED = (*t.COMPARISONS, "min", "max")
TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True)
class Shown:
    """An axis the size of whose tiles shows. `nan`: some of them give NaN, others a number."""

    axis: str
    nan: bool


@dataclasses.dataclass(frozen=True)
class Draw:
    """Floats are eighths times `scale`. Integers are less than `most`, or with `LARGEST` half of
    them of any size; of those under 2 all are indices. With `near`, half of the integers are from
    there, and a quarter of the floats. Floats are `signed`, except where results that
    are not finite may hide what differs. Dimensions have so many elements more as `beyond` says.
    """

    scale: float = 1.0
    most: int = LARGEST
    near: tuple[float, ...] = ()
    signed: bool = True
    sign: int = 1
    """Of scalars; integers are as large as any where it is positive."""
    beyond: Mapping[str, int] = dataclasses.field(default_factory=dict)


@np.errstate(all="ignore")
def find_shown(
    kernel: Kernel, axes: Sequence[str], scalars: Mapping[str, Any] | None = None
) -> Shown | None:
    """The first of `axes` of which the size of the tiles shows, on arrays made here. `scalars`: the
    values of parameters; None for any that is positive.
    """
    exact = in_double(kernel)
    trials = [(exact, Draw(scale)) for scale in (1.0,) * TRIALS + _bounds(exact)]
    trials += [(decided, Draw()) for decided in _decided(exact)] * 2
    near = _near_compared(exact)
    trials += [(exact, Draw(near=near))] * (TRIALS if near else 0)
    trials += [(exact, Draw(beyond=_reach(kernel)))] * 2
    dims = {axis.name: axis.dim for axis in _walked(kernel)}
    for trial, (tried, draw) in enumerate(trials):
        rng = np.random.default_rng(trial)
        most = LARGEST if trial % TRIALS and not draw.near else 2
        draw = dataclasses.replace(draw, most=most)
        others = [dataclasses.replace(draw, scale=scale, signed=False) for scale in ONE_SIGN]
        signs = dataclasses.replace(draw, sign=SIGNS[trial % len(SIGNS)])
        for own in (signs, *others):
            small, arrays = _random_arrays(tried, rng, own, scalars or {})
            size = int(rng.integers(2, LARGEST))
            reach = {a: draw.beyond.get(dims[a], 0) for a in axes}
            tiles = int(TILES ** (1 / len(axes)))
            cuts = {a: (max(1, 2 * n // tiles), n // 2 + size) for a, n in reach.items()}
            expected = _evaluated(small, arrays, dict.fromkeys(axes, ONE_TILE))
            if shown := _compare(small, arrays, cuts, expected):
                return shown
            if draw.near or _are_finite(expected):
                break
    return None


def _are_finite(arrays: Mapping[str, Array]) -> bool:
    """Half of the elements of each array, at least."""
    return all(2 * np.isfinite(a).sum() >= a.size for a in arrays.values() if a.dtype == np.float64)


def _decided(kernel: Kernel) -> Iterator[Kernel]:
    """The kernel with each choice by a scalar made one way or the other, since small sizes may make
    it one way alone: all of them so, none, and at random.
    """
    namer, counted = Namer.of(kernel), _counted(kernel)
    found = 0

    def is_choice(op: Op) -> bool:
        if isinstance(op, t.Map) and op.fn == "where":
            return op.args[0].type == Tile(BOOL) and op.result in counted
        return isinstance(op, t.If)

    def with_choices(region: Region, way: Callable[[], bool]) -> Region:
        nonlocal found
        made: list[Op] = []
        for op in region:
            op = with_regions(op, lambda inner: with_choices(inner, way))
            if is_choice(op):
                found += 1
                chosen = Value(namer.new("chosen"), Tile(BOOL))
                made.append(t.Constant(result=chosen, value=way(), loc=op.loc))
                if isinstance(op, t.If):
                    op = dataclasses.replace(op, cond=chosen)
                elif isinstance(op, t.Map):
                    op = dataclasses.replace(op, args=(chosen, *op.args[1:]))
            made.append(op)
        return tuple(made)

    rng = np.random.default_rng(0)
    ways: tuple[Callable[[], bool], ...] = (
        lambda: True, lambda: False, *(lambda: bool(rng.integers(2)),) * 2,
    )  # fmt: skip
    for way in ways:
        body = with_choices(kernel.body, way)
        if not found:
            return
        yield kernel.with_body(body)


@np.errstate(all="ignore")
def find_shown_on(kernel: Kernel, arrays: Mapping[str, Any], axes: Sequence[str]) -> Shown | None:
    """The same on given arrays, with two sizes of tiles by which no axis is one tile."""
    exact = in_double(kernel)
    pairs = zip(kernel.params, exact.params, strict=True)
    double = {p.name: _as_double(p, own, arrays[p.name]) for p, own in pairs}
    sizes = {axis: _cuts(kernel, arrays, axis) for axis in axes}
    expected = _evaluated(exact, double, dict.fromkeys(axes, ONE_TILE))
    return _compare(exact, double, sizes, expected)


def _cuts(kernel: Kernel, arrays: Mapping[str, Any], axis: str) -> tuple[int, ...]:
    """Two sizes of tiles, of which an axis of these arrays has two, and some more."""
    dim = next(a.dim for a in _walked(kernel) if a.name == axis)
    tensors = [p for p in kernel.params if isinstance(p.type, Tensor)]
    held = [pair for p in tensors for pair in zip(p.as_tensor.dims, np.shape(arrays[p.name]))]
    size = next((n for d, n in held if d == dim), 1)
    return tuple(sorted({max(1, size * 5 // 9), max(1, min(size // 3, 300))}))


def _walked(kernel: Kernel) -> set[Axis]:
    return {op.index.as_axis for op in kernel.of(t.ForTiles)}


def _compare(
    kernel: Kernel,
    arrays: Mapping[str, Any],
    cuts: Mapping[str, Sequence[int]],
    expected: Mapping[str, Array],
) -> Shown | None:
    """All axes are cut at once; each is alone only where that shows."""

    def shown(axis: str, sizes: Mapping[str, int]) -> Shown | None:
        tile = {**dict.fromkeys(cuts, ONE_TILE), **sizes}
        for name, held in _evaluated(kernel, arrays, tile).items():
            own, floats = expected[name], held.dtype == np.float64
            nan = floats and not np.array_equal(np.isnan(held), np.isnan(own))
            if nan or not (_are_close(held, own) if floats else np.array_equal(held, own)):
                return Shown(axis, nan)
        return None

    for i in range(max(map(len, cuts.values()))):
        together = {a: sizes[(i - k) % len(sizes)] for k, (a, sizes) in enumerate(cuts.items())}
        if found := shown(next(iter(cuts)), together):
            alone = (shown(axis, {axis: size}) for axis, sizes in cuts.items() for size in sizes)
            return next(filter(None, alone), found)
    return None


def _are_close(held: Array, expected: Array) -> bool:
    """Beside the largest of them."""
    largest = np.max(np.abs(expected), where=np.isfinite(expected), initial=0.0)
    return np.allclose(held, expected, TOLERANCE, TOLERANCE * largest, equal_nan=True)


def _evaluated(
    kernel: Kernel, arrays: Mapping[str, Any], tile: Mapping[str, int]
) -> dict[str, Array]:
    own = {n: np.array(a) if isinstance(a, np.ndarray) else a for n, a in arrays.items()}
    evaluate(kernel, own, tile)
    return {n: a for n, a in own.items() if isinstance(a, np.ndarray)}


# A kernel that computes in 64 bits ----------------------------------------------------------------


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
    tensors = {p for p in kernel.params if isinstance(p.type, Tensor) and not _is_packed(p.type)}
    found = {p for p in tensors if not p.as_tensor.dtype.is_float}
    for op in kernel.ops:
        match op:
            case t.Store(accumulate=False) if dtype_of(_before_cast(op.value, kernel)).is_float:
                pass
            case _:
                found -= {*operands(op)}
    return found


def _before_cast(value: Value, kernel: Kernel) -> Value:
    made = kernel.definers.get(value)
    return made.x if isinstance(made, t.Cast) else value


def _unrounded(region: Region, kernel: Kernel, rounded: set[Value]) -> Region:
    def changed(op: Op) -> Op:
        op = with_regions(op, lambda inner: _unrounded(inner, kernel, rounded))
        if isinstance(op, t.Store) and op.tensor in rounded:
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
        if not isinstance(op, t.Bitcast):
            yield op
            return
        x, made = op.x, op.result
        if dtype_of(x).is_float:
            x = Value(namer.new("own"), x.type)
            yield t.Cast(result=x, x=op.x, loc=op.loc)
        if dtype_of(made).is_float:
            made = Value(namer.new("own"), made.type)
        yield dataclasses.replace(op, x=x, result=made)
        if made != op.result:
            yield t.Cast(result=op.result, x=made, loc=op.loc)

    return tuple(new for op in region for new in changed(op))


# Its arrays ---------------------------------------------------------------------------------------


def _bounds(kernel: Kernel) -> tuple[float, ...]:
    """Powers of two below the numbers that a kernel compares with, the first of them: sums of
    values of that size get across such a bound in some tiles.
    """
    ops = [*walk(kernel.body)]
    compared = {v for op in ops if isinstance(op, t.Map) and op.fn in BOUNDED for v in op.args}
    numbers = [
        abs(float(op.value))
        for op in ops
        if isinstance(op, t.Constant) and op.result in compared and dtype_of(op.result).is_float
    ]
    usual = dict.fromkeys(2.0 ** round(np.log2(n)) for n in numbers if 4 < n < 2.0**100)
    return tuple(n / part for n in [*usual][:TRIALS] for part in (1, 2, 4))


def _near_compared(kernel: Kernel) -> tuple[float, ...]:
    """The numbers of which something is made that a kernel compares, and those beside them: what it
    does where a value from memory is one of them, it may do nowhere else. And NaN, if it asks for
    that, as `argmax` does, with the largest and the least of all, which then are there twice.
    """
    found: dict[float, None] = {}
    met: set[Value] = set()
    compared = [op for op in kernel.of(t.Map) if op.fn in t.COMPARISONS]
    counted = _counted(kernel)
    work = [v for op in compared if op.result in counted for v in op.args]
    while work:
        value = work.pop()
        op = kernel.definers.get(value)
        if value not in met and isinstance(op, t.Map | t.Cast | t.Full):
            work += operands(op)
        elif isinstance(op, t.Constant) and not isinstance(op.value, bool):
            number = float(op.value)
            if np.isfinite(number):
                found |= dict.fromkeys((number, number - 1, number + 1))
        met.add(value)
    if any(isinstance(op, t.Map) and op.fn in ("eq", "ne") and _alike(op) for op in kernel.ops):
        found |= dict.fromkeys((np.nan, -LARGEST_DRAWN, LARGEST_DRAWN))
    return tuple(found)


def _reach(kernel: Kernel) -> dict[str, int]:
    """The largest number that indices of a dimension are compared with, or computed with for that,
    or at which loops begin and end: in smaller arrays all are on one side of it. Numbers that are
    too large for a trial are left out.
    """
    known: dict[Value, tuple[frozenset[str], int]] = {}
    found: dict[str, int] = {}
    for op in kernel.ops:
        parts = [known[v] for v in operands(op) if v in known]
        dims = frozenset(dim for of_one, _ in parts for dim in of_one)
        number = max((n for _, n in parts), default=0)
        match op:
            case t.Constant(value=int(value)):
                number = abs(value)
            case t.Index(axis=axis) | t.End(axis=axis) | t.Block(axis=axis):
                dims, number = frozenset((axis.as_axis.dim,)), getattr(op, "size", 0)
            case t.Map(fn="floordiv" | "mod"):
                number = math.prod(n + 1 for _, n in parts)
            case t.ForTiles():
                dims |= {op.index.as_axis.dim}
            case _:
                if not isinstance(op, t.Map | t.Cast | t.Full):
                    continue
        number = min(number, LARGEST_REACH)
        if isinstance(op, OneResult):
            known[op.result] = dims, number
        found |= {dim: max(number, found.get(dim, 0)) for dim in dims if number}
    most = LARGEST_REACH ** (1 / max(1, len(found)))
    return {dim: n for dim, n in found.items() if 2 * n <= most}


def _counted(kernel: Kernel) -> set[Value]:
    """Values that do more than tell where something is loaded, which is the same for all tiles."""
    found: set[Value] = set()
    for op in reversed(kernel.ops):
        if isinstance(op, t.Map | t.Cast) and op.result not in found:
            continue
        used = operands(op)
        found |= {v for v in used if not isinstance(op, t.Load) or v.type != Tile(I32)}
    return found


def _alike(op: t.Map) -> bool:
    """Whether it compares a value with itself: only NaN differs."""
    return op.args[0] == op.args[1]


def _random_arrays(
    kernel: Kernel, rng: np.random.Generator, draw: Draw, scalars: Mapping[str, Any]
) -> tuple[Kernel, dict[str, Any]]:
    """The kernel with small sizes for what it fixes, and arguments for it."""
    sizes: dict[str, int] = {}
    arrays: dict[str, Any] = {}
    packed = {p.type.dims[-1] for p in kernel.params if _is_packed(p.type)}
    axes = {v.type.dim for v in definitions(kernel) if isinstance(v.type, Axis)}
    axes |= {
        p.type.dims[0]
        for p in kernel.params
        if isinstance(p.type, Tensor) and len(p.type.dims) == 1
    }
    few = {op.dim for op in kernel.of(t.ForEach) if not op.init} - axes - packed
    for p in kernel.params:
        if isinstance(p.type, Tile):
            asked = p.name in scalars
            own = dataclasses.replace(draw, near=(), sign=1) if asked else draw
            found = _values(p.type.dtype, (), rng, own).item()
            if p.type.dtype.is_float:
                found = (abs(found) or 1.0) * own.sign
            elif own.sign >= 0 and not draw.near and p.type.dtype.kind != "bool":
                # A loop from there on has all, and one up to there has some.
                found = own.most * own.sign
            arrays[p.name] = found if scalars.get(p.name) is None else scalars[p.name]
            continue
        shape: list[int] = []
        for dim in p.as_tensor.dims:
            if isinstance(dim, int):
                shape.append(min(dim, LARGEST_FIXED))
            else:
                size = int(rng.integers(*((1, 3) if dim in few else (2, LARGEST))))
                size += 2 * draw.beyond.get(dim, 0)
                shape.append(sizes.setdefault(dim, size & ~1 if dim in packed else size))
        if _is_packed(p.as_tensor):
            shape[-1] = (shape[-1] + 1) // 2
            arrays[p.name] = rng.integers(0, 256, size=shape).astype(np.uint8)
        else:
            arrays[p.name] = _values(p.as_tensor.dtype, tuple(shape), rng, draw)
    small = {p: Value(p.name, _small(p.type)) for p in kernel.params}
    body = rewrite(retype(kernel.body, small), _with_small_blocks)
    return dataclasses.replace(kernel, params=tuple(small.values()), body=body), arrays


def _with_small_blocks(op: Op) -> tuple[Op]:
    """Blocks of which small arrays have several."""
    if isinstance(op, t.ReduceBlocks):
        return (dataclasses.replace(op, size=min(op.size, 2)),)
    return (op,)


def _is_packed(kind: Any) -> TypeGuard[Tensor]:
    return isinstance(kind, Tensor) and kind.dtype.bits == 4


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
        made = rng.integers(least, eighths + 1, size=shape) * np.float64(draw.scale / 8)
        return _some_of(made, draw.near, 4, rng)
    low, high = integer_range(dtype)
    made = rng.integers(0, min(high, draw.most), size=shape)
    if draw.most == LARGEST:
        large = rng.integers(low, high, size=shape, endpoint=True)
        made = np.where(rng.integers(0, 2, size=shape) == 0, made, large)
    near = tuple(n for n in draw.near if n.is_integer() and low <= n <= high)
    return np.asarray(_some_of(made, near, 2, rng)).astype(numpy_dtype(dtype))


def _some_of(made: Array, numbers: Sequence[float], one_of: int, rng: np.random.Generator) -> Array:
    """With one of so many elements exchanged for one of the numbers."""
    if not numbers:
        return made
    chosen = rng.choice(np.asarray(numbers, dtype=made.dtype), size=made.shape)
    return np.where(rng.integers(0, one_of, size=made.shape) == 0, chosen, made)


def _as_double(param: Value, exact: Value, held: Any) -> Any:
    """The type is that of the parameter as `in_double` has it."""
    if isinstance(param.type, Tile):
        return held
    array, dtype = np.asarray(held), param.as_tensor.dtype
    if not dtype.is_float:
        return array.astype(numpy_dtype(dtype_of(exact)))
    if array.dtype == np.uint8:
        bits = unpack_nibbles(array, dtype, 2 * array.shape[-1]) if dtype.bits == 4 else array
        array = reinterpret(bits.view(np.uint8), DTYPES["u8"], dtype)
    return array.astype(np.float64)
