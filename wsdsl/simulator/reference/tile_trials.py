"""Test whether the size of a tile changes the results of a TILE kernel, by trials.

The kernel is evaluated on small random arrays, with tiles of 1, 2, ... elements of one axis, and
with one tile for all of it. Floats are computed in 64 bits, and are eighths, so that the order of
additions changes nothing: results that differ by more than a billionth differ because of the tiles.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Region, Value
from wsdsl.ir.rewriter import Namer, with_regions
from wsdsl.ir.types import BOOL, Axis, Sizes, Tensor, Tile
from wsdsl.simulator.reference import tile_trial_arrays as inputs
from wsdsl.simulator.reference.arithmetic import Array
from wsdsl.simulator.reference.numpy_evaluation import evaluate
from wsdsl.simulator.reference.tile_trial_kernel import as_double, in_double

ONE_SIGN = (1.0, 0.5, 16.0, -1.0)
"""Scales of floats of one sign, tried until results are finite: for logarithms and roots."""
SIGNS = 1, -1, 0
TILES = 64
"""Of arrays in which indices get beyond numbers, at most, by all axes together."""
ONE_TILE = 1 << 40
TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True)
class Shown:
    """An axis the size of whose tiles shows. `nan`: some of them give NaN, others a number."""

    axis: str
    nan: bool


@np.errstate(all="ignore")
def find_shown(
    kernel: Kernel, axes: Sequence[str], scalars: Mapping[str, Any] | None = None
) -> Shown | None:
    """The first of `axes` whose tile size changes results, on random arrays. `scalars`: the values
    of parameters; None for any that is positive.
    """
    exact = in_double(kernel)
    trials = [(exact, inputs.Draw(x)) for x in (1.0,) * inputs.TRIALS + inputs.bounds(exact)]
    trials += [(decided, inputs.Draw()) for decided in _decided(exact)] * 2
    near = inputs.near_compared(exact)
    trials += [(exact, inputs.Draw(near=near))] * (inputs.TRIALS if near else 0)
    trials += [(exact, inputs.Draw(beyond=inputs.reach(kernel)))] * 2
    dims = {axis.name: axis.dim for axis in _walked(kernel)}
    for trial, (tried, draw) in enumerate(trials):
        rng = np.random.default_rng(trial)
        most = inputs.LARGEST if trial % inputs.TRIALS and not draw.near else 2
        draw = dataclasses.replace(draw, most=most)
        others = [dataclasses.replace(draw, scale=scale, signed=False) for scale in ONE_SIGN]
        signs = dataclasses.replace(draw, sign=SIGNS[trial % len(SIGNS)])
        for own in (signs, *others):
            small, arrays = inputs.random_arrays(tried, rng, own, scalars or {})
            size = int(rng.integers(2, inputs.LARGEST))
            numbers = {a: draw.beyond.get(dims[a], 0) for a in axes}
            tiles = int(TILES ** (1 / len(axes)))
            cuts = {a: (max(1, 2 * n // tiles), n // 2 + size) for a, n in numbers.items()}
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
    namer, counted = Namer.of(kernel), inputs.values_in_results(kernel)
    count = 0

    def is_choice(op: Op) -> bool:
        if isinstance(op, ops.Map) and op.fn == "where":
            return op.args[0].type == Tile(BOOL) and op.result in counted
        return isinstance(op, ops.If)

    def with_choices(region: Region, way: Callable[[], bool]) -> Region:
        nonlocal count
        results: list[Op] = []
        for op in region:
            op = with_regions(op, lambda inner: with_choices(inner, way))
            if is_choice(op):
                count += 1
                chosen = Value(namer.new("chosen"), Tile(BOOL))
                results.append(ops.Constant(result=chosen, value=way(), loc=op.loc))
                if isinstance(op, ops.If):
                    op = dataclasses.replace(op, cond=chosen)
                elif isinstance(op, ops.Map):
                    op = dataclasses.replace(op, args=(chosen, *op.args[1:]))
            results.append(op)
        return tuple(results)

    rng = np.random.default_rng(0)
    ways: tuple[Callable[[], bool], ...] = (
        lambda: True, lambda: False, *(lambda: bool(rng.integers(2)),) * 2,
    )  # fmt: skip
    for way in ways:
        body = with_choices(kernel.body, way)
        if not count:
            return
        yield kernel.with_body(body)


@np.errstate(all="ignore")
def find_shown_on(kernel: Kernel, arrays: Mapping[str, Any], axes: Sequence[str]) -> Shown | None:
    """The same on given arrays, with two sizes of tiles by which no axis is one tile."""
    exact = in_double(kernel)
    pairs = zip(kernel.params, exact.params, strict=True)
    double = {p.name: as_double(p, own, arrays[p.name]) for p, own in pairs}
    sizes = {axis: _cuts(kernel, arrays, axis) for axis in axes}
    expected = _evaluated(exact, double, dict.fromkeys(axes, ONE_TILE))
    return _compare(exact, double, sizes, expected)


def _cuts(kernel: Kernel, arrays: Mapping[str, Any], axis: str) -> tuple[int, ...]:
    """Two sizes of tiles that divide the axis of these arrays into two tiles, and into more."""
    dim = next(a.dim for a in _walked(kernel) if a.name == axis)
    tensors = [p for p in kernel.params if isinstance(p.type, Tensor)]
    values = [pair for p in tensors for pair in zip(p.as_tensor.dims, np.shape(arrays[p.name]))]
    size = next((n for d, n in values if d == dim), 1)
    return tuple(sorted({max(1, size * 5 // 9), max(1, min(size // 3, 300))}))


def _walked(kernel: Kernel) -> set[Axis]:
    return {op.index.as_axis for op in kernel.of(ops.ForTiles)}


def _compare(
    kernel: Kernel,
    arrays: Mapping[str, Any],
    cuts: Mapping[str, Sequence[int]],
    expected: Mapping[str, Array],
) -> Shown | None:
    """All axes are cut at once; each is alone only where that shows."""

    def shown(axis: str, sizes: Sizes) -> Shown | None:
        tile = {**dict.fromkeys(cuts, ONE_TILE), **sizes}
        for name, value in _evaluated(kernel, arrays, tile).items():
            own, floats = expected[name], value.dtype == np.float64
            nan = floats and not np.array_equal(np.isnan(value), np.isnan(own))
            if nan or not (_are_close(value, own) if floats else np.array_equal(value, own)):
                return Shown(axis, nan)
        return None

    for i in range(max(map(len, cuts.values()))):
        together = {a: sizes[(i - k) % len(sizes)] for k, (a, sizes) in enumerate(cuts.items())}
        if result := shown(next(iter(cuts)), together):
            alone = (shown(axis, {axis: size}) for axis, sizes in cuts.items() for size in sizes)
            return next(filter(None, alone), result)
    return None


def _are_close(value: Array, expected: Array) -> bool:
    """Whether all elements are close, relative to the largest one."""
    largest = np.max(np.abs(expected), where=np.isfinite(expected), initial=0.0)
    return np.allclose(value, expected, TOLERANCE, TOLERANCE * largest, equal_nan=True)


def _evaluated(kernel: Kernel, arrays: Mapping[str, Any], tile: Sizes) -> dict[str, Array]:
    own = {n: np.array(a) if isinstance(a, np.ndarray) else a for n, a in arrays.items()}
    evaluate(kernel, own, tile)
    return {n: a for n, a in own.items() if isinstance(a, np.ndarray)}
