"""The PTX of integer functions, run here: the reference's numbers, wrapped alike."""

import numpy as np
import pytest

from tests.codegen.run_warp import run_warp
from tests.codegen.support import kernel_of
from wsdsl.ir.types import DTYPES
from wsdsl.simulator.reference.arithmetic import apply

BODY = """
%zero: i32 = constant(value=0)
%r: frag<i32[64x1]> = iota(start=%zero)
%c: frag<i32[1x8]> = iota(start=%zero)
%x: frag<{dtype}[64x8]> = load_global(tensor=%X, index=(%r, %c), vector=2)
%y: frag<{dtype}[64x8]> = load_global(tensor=%Z, index=(%r, %c), vector=2)
%z: frag<{dtype}[64x8]> = map(fn="{fn}", args=({args}))
store_global(tensor=%Y, index=(%r, %c), value=%z, vector=2)
"""
ODD = [0, 1, 2, 7, 31, 32, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x9E3779B9, 0x55555555]


@pytest.mark.parametrize("dtype", ["i32", "u32"])
@pytest.mark.parametrize("fn", ["popcount", "mulhi", "mul", "add", "sub", "shl", "shr"])
def test_as_the_reference_has_it(fn: str, dtype: str) -> None:
    kind = DTYPES[dtype]
    x, y = (np.random.default_rng(seed).choice(ODD, (16, 8)).astype(np.uint32) for seed in (0, 1))
    x, y = (v.view("i4" if dtype == "i32" else "u4") for v in (x, y))
    used = [x] if fn == "popcount" else [x, y]
    body = BODY.format(dtype=dtype, fn=fn, args="%x," if len(used) == 1 else "%x, %y")
    params = ", ".join(f"%{name}: tensor<{dtype}[M, N]>" for name in "XZY")
    made = run_warp(kernel_of(body, params), dict(M=16, N=8), {"X": x, "Z": y}, "Y", x.nbytes)
    assert np.array_equal(made.view(x.dtype).reshape(16, 8), apply(fn, used, kind, kind))


WRAPPED = """
%zero: i32 = constant(value=0)
%by: i32 = constant(value={by})
%ten: i32 = constant(value=10)
%r: frag<i32[64x1]> = iota(start=%zero)
%c: frag<i32[1x8]> = iota(start=%first)
%x: frag<i32[1x8]> = map(fn="mul", args=(%c, %by), wraps=True)
%y: frag<i32[1x8]> = map(fn="mod", args=(%x, %ten))
%z: frag<i32[64x8]> = map(fn="add", args=(%r, %y))
%d: frag<i32[1x8]> = iota(start=%zero)
store_global(tensor=%Y, index=(%r, %d), value=%z, vector=2)
"""


@pytest.mark.parametrize("by", [3, 1_000_003])
def test_a_wrapped_product_of_indices_may_be_negative(by: int) -> None:
    first = 2**30 + 5
    body = f"%first: i32 = constant(value={first})\n{WRAPPED.format(by=by)}"
    made = run_warp(kernel_of(body, "%Y: tensor<i32[M, N]>"), dict(M=16, N=8), {}, "Y", 512)
    wrapped = ((np.arange(8) + first) * by).astype(np.int32)
    wanted = np.arange(16)[:, None] + wrapped % 10
    assert (wrapped < 0).any()
    assert np.array_equal(made.view(np.int32).reshape(16, 8), wanted)
