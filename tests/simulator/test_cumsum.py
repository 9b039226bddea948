"""Sums up to each element of an axis: NumPy's, for any tile."""

from typing import Any

import numpy as np
import pytest

from wsdsl import Schedule, ScheduleError, TypeCheckError, parse

TEXT = """
@kernel
def whole(X: {t}[M, N], Y: {s}[M, N]):
    for m in tiles(M):
        Y[m, :] = cumsum(X[m, :], over=N)

@kernel
def tiled(X: {t}[M, N], Y: {s}[M, N]):
    for m, n in tiles(M, N):
        Y[m, n] = cumsum(X[m, n], over=n)

@kernel
def walked(X: {t}[M, N], Y: {s}[M, N]):
    for m in tiles(M):
        before = zeros({s}[m])
        for n in tiles(N):
            x = X[m, n]
            Y[m, n] = before + cumsum(x, over=n)
            before += sum(x, over=n)
"""


def inputs(dtype: str, columns: int) -> Any:
    held = np.dtype(dict(f32="f4", i8="i1", u32="u4")[dtype])
    rng, shape = np.random.default_rng(columns), (70, columns)
    if dtype == "f32":
        return rng.integers(-9, 9, shape).astype(held)
    limits = np.iinfo(held)
    return rng.integers(limits.min, limits.max, shape, dtype=held, endpoint=True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("dtype", "sums"), [("f32", "f32"), ("i8", "i32"), ("u32", "u32")])
def test_as_numpy_has_it(dtype: str, sums: str) -> None:
    made = parse(TEXT.format(t=dtype, s=sums))
    for columns in (1, 9, 100, 200):
        x = inputs(dtype, columns)
        wanted = x.cumsum(1, dtype=dict(f32="f4", i32="i4", u32="u4")[sums])
        for kernel in (made.whole, made.tiled, made.walked):
            for run in (kernel.reference, kernel.simulate):
                y = np.zeros_like(wanted)
                run(x, y)
                assert np.array_equal(y, wanted)


def test_a_part_of_an_axis() -> None:
    """Elements outside of it are not read."""
    text = TEXT.format(t="f32", s="f32").replace("tiles(N)", "tiles(a, b, of=N)")
    text = text.replace("walked(", "walked(a: i32, b: i32, ")
    x, y = inputs("f32", 100), np.zeros((70, 100), np.float32)
    x[:, :5], x[:, 90:] = np.nan, np.nan
    parse(text).walked.simulate(5, 90, x, y)
    assert np.array_equal(y[:, 5:90], x[:, 5:90].cumsum(1))
    assert not y[:, :5].any() and not y[:, 90:].any()


def test_results_that_depend_on_the_tile_are_rejected() -> None:
    text = TEXT.format(t="f32", s="f32").replace("before + cumsum", "cumsum")
    with pytest.raises(TypeCheckError, match="the tile size"):
        parse(text).walked.compile()


def test_warps_do_not_share_rows() -> None:
    kernel = parse(TEXT.format(t="f32", s="f32")).walked
    with pytest.raises(ScheduleError, match="warps split rows in tiles of 2 rows"):
        kernel.compile(schedule=Schedule(tile=dict(m=2, n=256)))
    x = inputs("f32", 200)
    y = np.zeros_like(x)
    kernel.simulate(x, y, schedule=Schedule(tile=dict(m=4, n=128)))
    assert np.array_equal(y, x.cumsum(1))
