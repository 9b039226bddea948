"""What the PTX of reductions over columns gives, whole rows and blocks of them, by any lanes."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from tests.codegen.run_warp import run_warp
from tests.codegen.support import kernel_of
from wsdsl.ir.types import DTYPES
from wsdsl.simulator.arithmetic import reduce, reduce_blocks, scan

BODY = """
%zero: i32 = constant(value=0)
%r: frag<i32[64x1]{lanes}> = iota(start=%zero)
%c: frag<i32[1x{columns}]{lanes}> = iota(start=%zero)
%x: frag<{dtype}[64x{columns}]{lanes}> = load_global(tensor=%X, index=(%r, %c))
%y: frag<{dtype}[64x{made}]{lanes}> = reduce_columns(fn="{fn}", x=%x{size})
%z: frag<{dtype}[64x{columns}]{lanes}> = map(fn="{spread}", args=(%y, %same))
store_global(tensor=%Y, index=(%r, %c), value=%z)
"""
LANES = ((2, 4), (4, 2), (4, 8), (2, 32), (8, 4))
FNS = (("f32", "add"), ("f32", "max"), ("i32", "min"), ("u32", "add"))
CASES = [
    (lanes, size, *fn)
    for n, (lanes, size) in enumerate(itertools.product(LANES, (0, 2, 4, 8, 16, 32, 64)))
    for fn in random.Random(n).sample(FNS, 1)
    if size < 2 * lanes[0] * lanes[1]
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("lanes", "size", "dtype", "fn"), CASES)
def test_as_the_simulator_has_it(lanes: tuple[int, int], size: int, dtype: str, fn: str) -> None:
    columns = 2 * lanes[0] * lanes[1]
    body = BODY.format(
        lanes="" if lanes == (2, 4) else f" lanes {lanes[0]}x{lanes[1]}",
        columns=columns, dtype=dtype, fn=fn, made=columns if size else 1,
        size=f", size={size}" if size else "", spread="add",
    )  # fmt: skip
    body = f"%same: {dtype} = constant(value={'-0.0' if dtype == 'f32' else 0})\n{body}"
    kernel = kernel_of(body, f"%X: tensor<{dtype}[M, N]>, %Y: tensor<{dtype}[M, N]>")
    x = np.random.default_rng(size).integers(-9 if dtype != "u32" else 0, 9, (16, columns))
    x = x.astype(dict(f32="f4", i32="i4", u32="u4")[dtype])
    made = run_warp(kernel, dict(M=16, N=columns), {"X": x}, "Y", x.nbytes).view(x.dtype)
    kind = DTYPES[dtype]
    wanted = reduce_blocks(fn, x, kind, 1, size or columns)
    assert np.array_equal(wanted[:, -1], reduce(fn, x[:, -(size or columns) :], kind, 1))
    assert np.array_equal(made.reshape(x.shape), wanted)


SCAN = """
%zero: i32 = constant(value=0)
%r: frag<i32[64x1]{lanes}> = iota(start=%zero)
%c: frag<i32[1x{columns}]{lanes}> = iota(start=%zero)
%x: frag<{dtype}[64x{columns}]{lanes}> = load_global(tensor=%X, index=(%r, %c))
%y: frag<{dtype}[64x{columns}]{lanes}> = scan_columns(x=%x)
store_global(tensor=%Y, index=(%r, %c), value=%y)
"""


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["f32", "u32"])
@pytest.mark.parametrize("lanes", LANES)
def test_sums_up_to_each_column(lanes: tuple[int, int], dtype: str) -> None:
    columns = 2 * lanes[0] * lanes[1]
    named = "" if lanes == (2, 4) else f" lanes {lanes[0]}x{lanes[1]}"
    body = SCAN.format(lanes=named, columns=columns, dtype=dtype)
    kernel = kernel_of(body, f"%X: tensor<{dtype}[M, N]>, %Y: tensor<{dtype}[M, N]>")
    x = np.random.default_rng(0).integers(0, 2**32 if dtype == "u32" else 99, (16, columns))
    x = x.astype(dict(f32="f4", u32="u4")[dtype])
    made = run_warp(kernel, dict(M=16, N=columns), {"X": x}, "Y", x.nbytes).view(x.dtype)
    assert np.array_equal(made.reshape(x.shape), scan(x, DTYPES[dtype], 1))
