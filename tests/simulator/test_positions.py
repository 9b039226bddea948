"""Positions of the largest and the smallest: NumPy's answer, for any tile."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from wsdsl import TypeCheckError, parse

TEXT = """
@kernel
def whole(X: {t}[M, N], Y: i32[M], Z: i32[M]):
    for m in tiles(M):
        Y[m] = argmax(X[m, :], over=N)
        Z[m] = argmin(X[m, :], over=N)

@kernel
def walked(X: {t}[M, N], Y: i32[M], Z: i32[M]):
    for m in tiles(M):
        most, least = full({t}[m], {low}), full({t}[m], {high})
        y, z = zeros(i32[m]), zeros(i32[m])
        for n in tiles(N):
            x = X[m, n]
            top, low = max(x, over=n), min(x, over=n)
            y = where({later}, argmax(x, over=n), y)
            z = where(~(low >= least) & (least == least), argmin(x, over=n), z)
            most, least = max(most, top), min(least, low)
        Y[m] = y
        Z[m] = z
"""
LATER = "~(top <= most) & (most == most)"
KINDS = {
    "f32": (np.float32, "-inf", "inf"),
    "bf16": (ml_dtypes.bfloat16, "-inf", "inf"),
    "i32": (np.int32, -(2**31), 2**31 - 1),
    "u8": (np.uint8, 0, 255),
}


def kernels(dtype: str, later: str = LATER) -> Any:
    low, high = KINDS[dtype][1:]
    return parse(TEXT.format(t=dtype, low=low, high=high, later=later))


def rows(dtype: str, seed: int, columns: int) -> Any:
    """Of few values, so that the largest is there more than once; some rows have NaN."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-4 if dtype != "u8" else 0, 5, (9, columns)).astype(np.float32)
    if dtype in ("f32", "bf16"):
        x[0], x[1, :-1] = -np.inf, np.inf
        x[rng.random(x.shape) < 1 / columns] = np.nan
    return x.astype(KINDS[dtype][0])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", KINDS)
def test_as_numpy_has_it(dtype: str) -> None:
    made = kernels(dtype)
    for seed, columns in enumerate((1, 7, 40, 136)):
        x = rows(dtype, seed, columns)
        wide = x.astype(np.float32 if x.dtype.itemsize < 4 else x.dtype)
        wanted = wide.argmax(1).tolist(), wide.argmin(1).tolist()
        runs = [run for k in (made.whole, made.walked) for run in (k.reference, k.simulate)]
        for run in runs:
            y, z = np.full(9, -1, np.int32), np.full(9, -1, np.int32)
            run(x, y, z)
            assert (y.tolist(), z.tolist()) == wanted


@pytest.mark.parametrize("later", ["top > most", "~(top < most) & (most == most)"])
def test_results_that_depend_on_the_tile_are_rejected(later: str) -> None:
    with pytest.raises(TypeCheckError, match="the tile size"):
        kernels("f32", later).walked.compile()
