"""Results of the PTX of reductions and scans over columns, by rows and blocks, for any lanes."""

import itertools
import random

import numpy as np
import pytest

from tests.codegen.run_warp import run_warp
from tests.codegen.support import kernel_of
from wsdsl.ir.types import DTYPES
from wsdsl.simulator.reference.arithmetic import reduce, reduce_blocks, scan

BODY = """
%zero: i32 = constant(value=0)
%r: frag<i32[64x1]{lanes}> = iota(start=%zero)
%c: frag<i32[1x{columns}]{lanes}> = iota(start=%zero)
%x: frag<{dtype}[64x{columns}]{lanes}> = load_global(tensor=%X, index=(%r, %c))
%y: frag<{dtype}[64x{made}]{lanes}> = {op}
%z: frag<{dtype}[64x{columns}]{lanes}> = map(fn="add", args=(%y, %same))
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
SCANS = [(lanes, 1, dtype, "scan") for lanes in LANES for dtype in ("f32", "u32")]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("lanes", "size", "dtype", "fn"), [*CASES, *SCANS])
def test_as_the_simulator_has_it(lanes: tuple[int, int], size: int, dtype: str, fn: str) -> None:
    columns = 2 * lanes[0] * lanes[1]
    op = "scan_columns(x=%x)"
    if fn != "scan":
        op = f'reduce_columns(fn="{fn}", x=%x{f", size={size}" if size else ""})'
    body = BODY.format(
        lanes="" if lanes == (2, 4) else f" lanes {lanes[0]}x{lanes[1]}",
        columns=columns, dtype=dtype, made=columns if size else 1, op=op,
    )  # fmt: skip
    body = f"%same: {dtype} = constant(value={'-0.0' if dtype == 'f32' else 0})\n{body}"
    kernel = kernel_of(body, f"%X: tensor<{dtype}[M, N]>, %Y: tensor<{dtype}[M, N]>")
    least, most = (0, 2**32) if dtype == "u32" else (-9, 9)
    x = np.random.default_rng(size).integers(least, most, (16, columns))
    x = x.astype(dict(f32="f4", i32="i4", u32="u4")[dtype])
    made = run_warp(kernel, dict(M=16, N=columns), {"X": x}, "Y", x.nbytes).view(x.dtype)
    if fn == "scan":
        wanted = scan(x, DTYPES[dtype], 1)
    else:
        wanted = reduce_blocks(fn, x, DTYPES[dtype], 1, size or columns)
        last = reduce(fn, x[:, -(size or columns) :], DTYPES[dtype], 1)
        assert np.array_equal(wanted[:, -1], last)
    assert np.array_equal(made.reshape(x.shape), wanted)
