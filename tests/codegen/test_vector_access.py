"""Vectors of adjacent elements, register by register."""

import numpy as np
import pytest

from tests.codegen.run_warp import run_warp
from tests.codegen.support import kernel_of
from wsdsl.ir.types import DTYPES
from wsdsl.simulator.reference.arithmetic import numpy_dtype

BODY = """
%zero: i32 = constant(value=0)
%r: frag<i32[64x1] lanes 8x16> = iota(start=%zero)
%c: frag<i32[1x128] lanes 8x16> = iota(start=%zero)
%x: frag<{source}[64x128] lanes 8x16> = load_global(tensor=%X, index=(%r, %c), vector=8)
%y: frag<{target}[64x128] lanes 8x16> = cast(x=%x)
store_global(tensor=%Y, index=(%r, %c), value=%y, vector=8)
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("columns", [128, 120])
@pytest.mark.parametrize(("source", "target"), [("bool", "u8"), ("u8", "bool"), ("i16", "i8")])
def test_elements_of_vectors(source: str, target: str, columns: int) -> None:
    kernel = kernel_of(
        BODY.format(source=source, target=target),
        f"%X: tensor<{source}[M, N]>, %Y: tensor<{target}[M, N]>",
    )
    kind = numpy_dtype(DTYPES[source])
    x = np.random.default_rng(0).integers(0, 2, (16, columns)).astype(kind)
    made = run_warp(kernel, {"M": 16, "N": columns}, {"X": x}, "Y", 16 * columns)
    assert np.array_equal(made.reshape(16, columns), x.astype(np.uint8))
