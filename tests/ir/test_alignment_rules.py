"""TMA boxes begin at multiples of 16 bytes, vectors of their width."""

import pytest

from wsdsl.ir.parser import parse_kernel
from wsdsl.ir.verify import vector_alignment, verifier

COPY = """
kernel sample @ scheduled (%X: tensor<bf16[M, N]>, %i: i32) {
  %map: tensor_map = make_tensor_map(tensor=%X, box=(8, 64), swizzle="128B")
  %c0: i32 = constant(value=0)
  %c4: i32 = constant(value=4)
  %c8: i32 = constant(value=8)
  %c24: i32 = constant(value=24)
  %size: i32 = dim_size(dim="N")
  for_range(index=%n: i32, start=%c24, stop=%size, step=%c8) {
    %odd: i32 = map(fn="sub", args=(%n, %c4))
    %far: i32 = map(fn="mul", args=(%i, %c8))
    %rest: i32 = map(fn="mod", args=(%i, %c8))
    %even: i32 = map(fn="sub", args=(%i, %rest))
    prefetch_box(map=%map, coordinates=(%i, %AT))
    yield()
  }
}
"""


def faults(text: str) -> list[str]:
    rules = verifier.rules_of(vector_alignment)
    return [fault for rule in rules for _, fault in rule(parse_kernel(text))]


@pytest.mark.parametrize("at", ["n", "far", "even", "c0", "i", "odd", "size", "rest"])
def test_box_is_rejected_when_its_start_may_be_odd(at: str) -> None:
    wrong = at in ("i", "odd", "size", "rest")
    told = [f"%{at} is not known to be a multiple of 8 elements"] * wrong
    assert faults(COPY.replace("%AT", f"%{at}")) == told


LOAD = """
kernel sample @ scheduled (%X: tensor<f32[M]>, %i: i32) {
  %c0: i32 = constant(value=0)
  %c8: i32 = constant(value=8)
  %far: i32 = map(fn="mul", args=(%i, %c8))
  %row: frag<i32[64x1] lanes 4x8> = iota(start=%c0)
  %rows: frag<i32[64x1] lanes 4x8> = map(fn="mul", args=(%row, %c8))
  %column: frag<i32[1x32] lanes 4x8> = iota(start=%far)
  %both: frag<i32[64x32] lanes 4x8> = map(fn="add", args=(%rows, %column))
  %wide: frag<i32[1x32] lanes 4x8> = map(fn="mul", args=(%column, %c8))
  %odd: frag<i32[1x32] lanes 4x8> = map(fn="add", args=(%column, %i))
  %near: frag<i32[64x32] lanes 4x8> = map(fn="add", args=(%row, %column))
  %x: frag<f32[64x32] lanes 4x8> = load_global(tensor=%X, index=(%AT,), vector=4)
}
"""


@pytest.mark.parametrize("at", ["column", "both", "wide", "odd", "near", "row", "i"])
def test_vector_is_rejected_when_columns_are_apart_or_odd(at: str) -> None:
    assert len(faults(LOAD.replace("%AT", f"%{at}"))) == (at not in ("column", "both"))
