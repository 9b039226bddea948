"""The largest of rows, in order, and their positions, for any tile."""

from typing import Any

import numpy as np
import pytest

from wsdsl import CompileError, TypeCheckError, parse

TEXT = """
@kernel
def whole(X: {t}[M, N], V: {t}[M, K], I: i32[M, K]):
    for m in tiles(M):
        v, i = topk(X[m, :], K, over=N)
        V[m, :] = v
        I[m, :] = i

@kernel
def walked(X: {t}[M, N], V: {t}[M, K], I: i32[M, K]):
    for m in tiles(M):
        v, i = full({t}[m, K], {low}), full(i32[m, K], 2147483647)
        for n in tiles(N):
            v, i = topk(X[m, n], K, v, i, over=n)
        V[m, :] = v
        I[m, :] = i
"""
LOW = dict(f32="-inf", i32=-(2**31), u8=0)
ROWS = 5


def rows(dtype: str, columns: int) -> Any:
    rng = np.random.default_rng(columns)
    x = rng.integers(0 if dtype == "u8" else -6, 7, (ROWS, columns)).astype(np.float32)
    if dtype == "f32":
        x[0], x[1, 1:] = -np.inf, -np.inf
        x[2, rng.random(columns) < 3 / columns] = np.nan
    return x.astype(dict(f32="f4", i32="i4", u8="u1")[dtype])


def largest(x: Any, count: int) -> tuple[list[Any], list[Any]]:
    """By Python's sort, which is stable: NaN first."""

    def key(value: Any) -> tuple[bool, Any]:
        return value == value, -value if value == value else 0

    wide = x.astype(object)
    kept = [sorted(range(len(row)), key=[*map(key, row)].__getitem__)[:count] for row in wide]
    return [[x[m, n] for n in row] for m, row in enumerate(kept)], kept


@pytest.mark.parametrize("dtype", LOW)
def test_in_order_with_the_least_index_first(dtype: str) -> None:
    made, count = parse(TEXT.format(t=dtype, low=LOW[dtype])), 4
    for columns in (4, 21, 136):
        x = rows(dtype, columns)
        values, places = largest(x, count)
        for run in (made.whole.reference, made.whole.simulate, made.walked.reference):
            v, i = np.zeros((ROWS, count), x.dtype), np.zeros((ROWS, count), np.int32)
            run(x, v, i)
            assert i.tolist() == places
            assert np.array_equal(v, np.array(values, x.dtype), equal_nan=dtype == "f32")


def test_of_fewer_elements() -> None:
    x = np.array([[1, 3]], np.float32)
    made = parse(TEXT.format(t="f32", low="-inf")).whole
    for run in (made.reference, made.simulate):
        v, i = np.zeros((1, 3), np.float32), np.zeros((1, 3), np.int32)
        run(x, v, i)
        assert v.tolist() == [[3, 1, -np.inf]] and i.tolist() == [[1, 0, 2**31 - 1]]


def test_rejected() -> None:
    text = TEXT.format(t="f32", low="-inf")
    with pytest.raises(CompileError, match="up to 32 largest elements"):
        parse(text).whole.compile(M=64, N=64, K=33)
    with pytest.raises(CompileError, match="size must be known"):
        parse(text).whole.compile()
    with pytest.raises(TypeCheckError, match="the tile size"):
        parse(text.replace("K, v, i, over", "K, over")).walked.compile(M=64, N=64, K=4)
