"""TILE kernels evaluated by the reference, against NumPy written independently of it."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from wsdsl.diagnostics import LaunchError
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.types import DTYPES
from wsdsl.simulator.reference.bound_arrays import pack_nibbles, unpack_nibbles
from wsdsl.simulator.reference.numpy_evaluation import evaluate

BF16 = ml_dtypes.bfloat16

GEMM = """
kernel gemm @ tile (%A: tensor<bf16[M, K]>, %B: tensor<bf16[K, N]>, %bias: tensor<f32[N]>,
                    %alpha: f32, %C: tensor<bf16[N, M]>) {
  for_tiles(index=%m: axis<m of M>) {
    for_tiles(index=%n: axis<n of N>) {
      %zero: f32 = constant(value=0.0)
      %acc: f32[m, n] = full(value=%zero)
      %sum: f32[m, n] = for_tiles(index=%k: axis<k of K>, init=(%acc,), args=(%x: f32[m, n],)) {
        %a: bf16[m, k] = load(tensor=%A, index=(%m, %k))
        %b: bf16[k, n] = load(tensor=%B, index=(%k, %n))
        %y: f32[m, n] = contract(a=%a, b=%b, acc=%x)
        yield(values=(%y,))
      }
      %bias_n: f32[n] = load(tensor=%bias, index=(%n,))
      %scaled: f32[m, n] = map(fn="mul", args=(%sum, %alpha))
      %out: f32[m, n] = map(fn="add", args=(%scaled, %bias_n))
      store(tensor=%C, index=(%n, %m), value=%out)
    }
  }
}
"""

SCATTER = """
kernel scatter @ tile (%X: tensor<f32[M, N]>, %rows: tensor<i32[M]>, %Y: tensor<f32[R, N]>,
                       %S: tensor<f32[M, NB]>) {
  for_tiles(index=%m: axis<m of M>) {
    for_tiles(index=%n: axis<n of N>) {
      %x: f32[m, n] = load(tensor=%X, index=(%m, %n))
      %r: i32[m] = load(tensor=%rows, index=(%m,))
      %four: i32 = constant(value=4)
      %in: i32[n] = index(axis=%n)
      %block: i32[n] = map(fn="floordiv", args=(%in, %four))
      %s: f32[m, n] = load(tensor=%S, index=(%m, %block))
      %y: f32[m, n] = map(fn="mul", args=(%x, %s))
      store(tensor=%Y, index=(%r, %n), value=%y, accumulate=True)
    }
  }
}
"""

CHOICE = """
kernel choice @ tile (%x: tensor<i4[N]>, %mode: i32, %y: tensor<i4[N]>) {
  for_tiles(index=%n: axis<n of N>) {
    %v: i4[n] = load(tensor=%x, index=(%n,))
    %zero: i32 = constant(value=0)
    %on: bool = map(fn="gt", args=(%mode, %zero))
    %r: i4[n] = if(cond=%on) {
      %neg: i4[n] = map(fn="neg", args=(%v,))
      yield(values=(%neg,))
    } {
      yield(values=(%v,))
    }
    store(tensor=%y, index=(%n,), value=%r)
  }
}
"""

TILES = [
    None,
    {"m": 5, "n": 3, "k": 4, "q": 3, "t": 2},
    {"m": 16, "n": 16, "k": 16, "q": 8, "t": 8},
]


def close(got: Any, wanted: Any, tolerance: float) -> None:
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("sizes", [(17, 11, 33), (1, 1, 1), (4, 6, 0)])
def test_gemm(sizes: tuple[int, int, int], tile: Any) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((m, k)).astype(BF16), rng.standard_normal((k, n)).astype(BF16)
    bias = rng.standard_normal(n).astype(np.float32)
    c = np.full((n, m), np.nan, BF16)
    evaluate(parse_kernel(GEMM), {"A": a, "B": b, "bias": bias, "alpha": 0.5, "C": c}, tile)
    wanted = 0.5 * (a.astype(np.float64) @ b.astype(np.float64)) + bias
    close(c, wanted.T, 2**-7)


@pytest.mark.parametrize("tile", TILES)
def test_scatter_adds_and_block_scales(tile: Any) -> None:
    rng = np.random.default_rng(5)
    x, s = rng.standard_normal((13, 10)), rng.standard_normal((13, 3))
    rows = rng.integers(-1, 6, 13).astype(np.int32)
    y = np.ones((5, 10), np.float32)
    given = {"X": x.astype(np.float32), "S": s.astype(np.float32), "rows": rows, "Y": y}
    evaluate(parse_kernel(SCATTER), given, tile)
    wanted = np.ones((5, 10))
    for i, r in enumerate(rows):
        if 0 <= r < 5:
            wanted[r] += x[i] * np.repeat(s[i], 4)[:10]
    close(y, wanted, 1e-5)


@pytest.mark.parametrize("mode", [0, 1])
def test_four_bits_and_if(mode: int) -> None:
    values = np.arange(-8, 8).astype(np.int8)
    x, y = np.zeros(8, np.uint8), np.zeros(8, np.uint8)
    pack_nibbles(values, x)
    evaluate(parse_kernel(CHOICE), {"x": x, "mode": mode, "y": y})
    got = unpack_nibbles(y, DTYPES["i4"], 16)
    assert got.tolist() == ([8 - 16, *range(7, -8, -1)] if mode else values.tolist())


def test_arrays_that_do_not_fit() -> None:
    arrays = {"A": np.zeros((4, 3), BF16), "B": np.zeros((2, 5), np.float32), "alpha": 1.0}
    with pytest.raises(LaunchError) as caught:
        evaluate(parse_kernel(GEMM), {**arrays, "bias": np.zeros(5, np.float32)})
    assert "needs C" in str(caught.value)
    whole = {**arrays, "bias": np.zeros(6, np.float32), "C": np.zeros((5, 4), BF16)}
    with pytest.raises(LaunchError) as caught:
        evaluate(parse_kernel(GEMM), whole)
    for told in ("B: dimension K is 2, not 3", "B has float32", "bias: dimension N is 6, not 5"):
        assert told in str(caught.value)
