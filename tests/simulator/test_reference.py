"""TILE kernels evaluated by the reference, against NumPy written independently of it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from wsdsl.diagnostics import LaunchError
from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.types import DTYPES
from wsdsl.simulator.arrays import pack_nibbles, unpack_nibbles
from wsdsl.simulator.reference import evaluate

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

ATTENTION = """
kernel attention @ tile (%Q: tensor<f32[H, S, D]>, %K: tensor<f32[H, T, D]>,
                         %V: tensor<f32[H, T, D]>, %O: tensor<f32[H, S, D]>) {
  for_each(dim="H", index=%h: i32) {
    for_tiles(index=%q: axis<q of S>) {
      %low: f32 = constant(value=-inf)
      %zero: f32 = constant(value=0.0)
      %d: axis<D of D> = whole()
      %top0: f32[q] = full(value=%low)
      %total0: f32[q] = full(value=%zero)
      %acc0: f32[q, D] = full(value=%zero)
      %first: i32 = constant(value=0)
      %end: i32 = end(axis=%q)
      %top3: f32[q], %total3: f32[q], %acc3: f32[q, D] = for_tiles(index=%t: axis<t of T>,
          start=%first, stop=%end, init=(%top0, %total0, %acc0),
          args=(%top: f32[q], %total: f32[q], %acc: f32[q, D])) {
        %qs: f32[q, D] = load(tensor=%Q, index=(%h, %q, %d))
        %ks: f32[t, D] = load(tensor=%K, index=(%h, %t, %d))
        %vs: f32[t, D] = load(tensor=%V, index=(%h, %t, %d))
        %s: f32[q, t] = contract(a=%qs, b=%ks)
        %iq: i32[q] = index(axis=%q)
        %it: i32[t] = index(axis=%t)
        %see: bool[q, t] = map(fn="ge", args=(%iq, %it))
        %masked: f32[q, t] = map(fn="where", args=(%see, %s, %low))
        %row: f32[q] = reduce(fn="max", x=%masked, axis="t")
        %new: f32[q] = map(fn="max", args=(%top, %row))
        %d1: f32[q, t] = map(fn="sub", args=(%masked, %new))
        %p: f32[q, t] = map(fn="exp", args=(%d1,))
        %d2: f32[q] = map(fn="sub", args=(%top, %new))
        %shrink: f32[q] = map(fn="exp", args=(%d2,))
        %t1: f32[q] = map(fn="mul", args=(%total, %shrink))
        %t2: f32[q] = reduce(fn="add", x=%p, axis="t")
        %total2: f32[q] = map(fn="add", args=(%t1, %t2))
        %a1: f32[q, D] = map(fn="mul", args=(%acc, %shrink))
        %acc2: f32[q, D] = contract(a=%p, b=%vs, acc=%a1)
        yield(values=(%new, %total2, %acc2))
      }
      %o: f32[q, D] = map(fn="div", args=(%acc3, %total3))
      store(tensor=%O, index=(%h, %q, %d), value=%o)
    }
  }
}
"""

GROUPED = """
kernel grouped @ tile (%A: tensor<bf16[M, K]>, %W: tensor<bf16[G, N, K]>,
                       %offset: tensor<i32[G1]>, %C: tensor<f32[M, N]>) {
  for_each(dim="G", index=%g: i32) {
    %one: i32 = constant(value=1)
    %g1: i32 = map(fn="add", args=(%g, %one))
    %from: i32 = load(tensor=%offset, index=(%g,))
    %to: i32 = load(tensor=%offset, index=(%g1,))
    for_tiles(index=%m: axis<m of M>, start=%from, stop=%to) {
      for_tiles(index=%n: axis<n of N>) {
        %k: axis<K of K> = whole()
        %a: bf16[m, K] = load(tensor=%A, index=(%m, %k))
        %w: bf16[n, K] = load(tensor=%W, index=(%g, %n, %k))
        %y: f32[m, n] = contract(a=%a, b=%w)
        store(tensor=%C, index=(%m, %n), value=%y)
      }
    }
  }
}
"""

UNWEIGHT = """
kernel unweight @ tile (%low: tensor<u8[N, K]>, %high: tensor<u4[N, K]>,
                        %palette: tensor<u8[16]>, %W: tensor<bf16[N, K]>) {
  for_tiles(index=%n: axis<n of N>) {
    for_tiles(index=%k: axis<k of K>) {
      %l8: u8[n, k] = load(tensor=%low, index=(%n, %k))
      %l: u16[n, k] = cast(x=%l8)
      %h4: u4[n, k] = load(tensor=%high, index=(%n, %k))
      %e8: u8[n, k] = lookup(table=%palette, i=%h4)
      %e: u16[n, k] = cast(x=%e8)
      %c128: u16 = constant(value=128)
      %c127: u16 = constant(value=127)
      %seven: u16 = constant(value=7)
      %eight: u16 = constant(value=8)
      %sign: u16[n, k] = map(fn="and", args=(%l, %c128))
      %sign8: u16[n, k] = map(fn="shl", args=(%sign, %eight))
      %e7: u16[n, k] = map(fn="shl", args=(%e, %seven))
      %mantissa: u16[n, k] = map(fn="and", args=(%l, %c127))
      %both: u16[n, k] = map(fn="or", args=(%sign8, %e7))
      %bits: u16[n, k] = map(fn="or", args=(%both, %mantissa))
      %w: bf16[n, k] = bitcast(x=%bits)
      store(tensor=%W, index=(%n, %k), value=%w)
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
def test_causal_attention(tile: Any) -> None:
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal((2, 19, 8)).astype(np.float32) for _ in range(3))
    o = np.full_like(q, np.nan)
    evaluate(parse_kernel(ATTENTION), {"Q": q, "K": k, "V": v, "O": o}, tile)
    scores = np.where(np.tril(np.ones((19, 19), bool)), q @ k.transpose(0, 2, 1), -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    close(o, p / p.sum(-1, keepdims=True) @ v, 1e-5)


@pytest.mark.parametrize("tile", TILES)
def test_grouped_gemm(tile: Any) -> None:
    rng = np.random.default_rng(3)
    offset = np.array([0, 7, 7, 20], np.int32)
    a = rng.standard_normal((20, 16)).astype(BF16)
    w = rng.standard_normal((3, 9, 16)).astype(BF16)
    c = np.full((20, 9), np.nan, np.float32)
    evaluate(parse_kernel(GROUPED), {"A": a, "W": w, "offset": offset, "C": c}, tile)
    for g in range(3):
        rows = slice(offset[g], offset[g + 1])
        close(c[rows], a[rows].astype(np.float64) @ w[g].astype(np.float64).T, 1e-5)


@pytest.mark.parametrize("columns", [8, 2])
def test_packed_weights_come_back(columns: int) -> None:
    rng = np.random.default_rng(4)
    palette = rng.permutation(np.arange(100, 150))[:16].astype(np.uint8)
    codes = rng.integers(0, 16, (6, columns)).astype(np.uint8)
    exponent = palette[codes].astype(np.uint16)
    low = rng.integers(0, 256, (6, columns)).astype(np.uint8)
    bits = (low & 128).astype(np.uint16) << 8 | exponent << 7 | (low & 127)
    packed = np.zeros((6, columns // 2), np.uint8)
    pack_nibbles(codes, packed)
    assert packed[0, 0] & 15 == codes[0, 0]
    w = np.zeros((6, columns), BF16)
    evaluate(parse_kernel(UNWEIGHT), {"low": low, "high": packed, "palette": palette, "W": w})
    assert (w.view(np.uint16) == bits).all()


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
    assert "no value for C" in str(caught.value)
    whole = {**arrays, "bias": np.zeros(6, np.float32), "C": np.zeros((5, 4), BF16)}
    with pytest.raises(LaunchError) as caught:
        evaluate(parse_kernel(GEMM), whole)
    for told in ("B: dimension K is 2, not 3", "B holds float32", "bias: dimension N is 6, not 5"):
        assert told in str(caught.value)
