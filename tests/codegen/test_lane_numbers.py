"""Quotients and remainders of indices by their lanes, and bytes that lie in vectors by them."""

import re

import numpy as np
import pytest

from tests.codegen.run_warp import run_warps
from tests.codegen.support import kernel_of, ptx_of
from wsdsl.codegen.addresses.lane_indices import Lanewise, columns_of_lanes, divided, rows_of_lanes
from wsdsl.codegen.launch_signature import access_of
from wsdsl.ir.op import Kernel

TEXT = """
%c0: i32 = constant(value=0)
%c2: i32 = constant(value=2)
%c4: i32 = constant(value=4)
%c8: i32 = constant(value=8)
%c16: i32 = constant(value=16)
%each: i32 = constant(value=32)
%r: frag<i32[64x1]> = iota(start=%c0)
%c: frag<i32[1x32]> = iota(start=%c0)
%pair: frag<i32[1x32]> = map(fn="floordiv", args=(%c, %c2))
%lane: frag<i32[1x32]> = map(fn="mod", args=(%pair, %c4))
%own: frag<i32[1x32]> = map(fn="mul", args=(%lane, %each))
%eight: frag<i32[1x32]> = map(fn="floordiv", args=(%c, %c8))
%word: frag<i32[1x32]> = map(fn="mul", args=(%eight, %c4))
%odd: frag<i32[1x32]> = map(fn="mod", args=(%c, %c2))
%two: frag<i32[1x32]> = map(fn="mul", args=(%odd, %c2))
%t: frag<i32[1x32]> = map(fn="add", args=(%own, %word))
%u: frag<i32[1x32]> = map(fn="add", args=(%t, %two))
%within: frag<i32[64x1]> = map(fn="mod", args=(%r, %c16))
%half: frag<i32[64x1]> = map(fn="floordiv", args=(%within, %c8))
%place: frag<i32[64x32]> = map(fn="add", args=(%u, %half))
%warp: frag<i32[64x1]> = map(fn="floordiv", args=(%r, %c16))
%first: frag<i32[64x1]> = map(fn="mul", args=(%warp, %c8))
%line: frag<i32[64x1]> = map(fn="mod", args=(%r, %c8))
%at: frag<i32[64x1]> = map(fn="add", args=(%first, %line))
%more: frag<i32[64x1]> = map(fn="add", args=(%line, %c8))
%n: i32 = dim_size(dim="L")
%few: frag<bool[64x1]> = map(fn="lt", args=(%line, %n))
%x: frag<u8[64x32]> = load_global(tensor=%X, index=(%at, %place))
%z: frag<u8[64x32]> = for_range(
  index=%i: i32, start=%c0, stop=%n, step=%c8, init=(%x,), args=(%y: frag<u8[64x32]>,)) {
  %again: frag<u8[64x32]> = load_global(tensor=%X, index=(%more, %place))
  %chosen: frag<u8[64x32]> = map(fn="where", args=(%few, %y, %again))
  yield(values=(%chosen,))
}
store_global(tensor=%Y, index=(%r, %c), value=%z, vector=2)
"""
PARAMS = "%X: tensor<u8[R, 128]>, %L: tensor<u8[L]>, %Y: tensor<u8[N, 32]>"


def kernel(text: str = TEXT) -> Kernel:
    return kernel_of(text, PARAMS)


def by_lanes(rows: int) -> np.ndarray:
    """Where byte [n, k] of 16 rows and 32 columns lies in its pair's 128."""
    n, k = np.arange(rows)[:, None], np.arange(32)
    return k // 2 % 4 * 32 + k // 8 * 4 + k % 2 * 2 + n % 16 // 8


@pytest.mark.parametrize("asked", ["line", "r"])
def test_vectors_bring_each_byte_to_its_place(asked: str) -> None:
    """Through a loop, and a choice by pairs of rows that are alike, or by each row."""
    x = np.random.default_rng(0).integers(0, 256, (32, 128)).astype(np.uint8)
    given = dict(X=x, L=np.zeros(16, np.uint8))
    text = TEXT.replace("args=(%line, %n))", f"args=(%{asked}, %n))")
    found, _ = run_warps(kernel(text), dict(R=32, L=5, N=16), given, "Y", 16 * 32)
    rows = np.arange(16)[:, None]
    few = (rows % 8 if asked == "line" else rows) < 5
    wanted = x[np.where(few, rows % 8, rows % 8 + 8), by_lanes(16)]
    assert bytes(found) == wanted.tobytes()


def test_one_vector_for_all_of_a_thread() -> None:
    ptx = ptx_of(kernel())
    loads = re.findall(r"ld\.global\S*", ptx)
    assert loads == 2 * ["ld.global.nc.v4.b32"]
    assert access_of(kernel()).alignment["X"] == 16
    # Adjacent elements in another order, or in different rows, are loaded one by one.
    other = ptx_of(kernel(TEXT.replace("args=(%own, %word)", "args=(%own, %odd)")))
    assert len(re.findall(r"ld\.global\S*", other)) > 2


@pytest.mark.parametrize("fn", ["mod", "floordiv"])
@pytest.mark.parametrize("number", [2, 4, 8, 16, 64])
@pytest.mark.parametrize("lanes", [rows_of_lanes(16), columns_of_lanes()])
def test_known_quotients_are_right(lanes: Lanewise, number: int, fn: str) -> None:
    """For every number that all lanes share; a result of None differs between lanes."""
    moved = lanes.times(3).moved(64, 5)
    for one in (lanes.moved(64), moved):
        offsets = [0, 1, 8, 16, 17]
        told = divided(fn, number, one, offsets)
        lines = np.array(one.own)[:, None] + offsets
        for shared in (0, 64, 192):
            made = (lines + shared) % number if fn == "mod" else (lines + shared) // number
            apart = made - made[:, :1]
            assert (told is None) == bool(np.any(apart != apart[0]))
            if told is not None:
                first, differences = told
                part = shared // number if fn == "floordiv" else 0
                assert np.array_equal(made[:, 0], np.array(first.own) + part)
                assert [*differences] == apart[0].tolist()
                assert first.shared == (64 // number if fn == "floordiv" else 0)


def test_numbers_that_do_not_divide_where_a_tile_begins_tell_nothing() -> None:
    assert divided("mod", 16, columns_of_lanes().moved(8), [0, 1]) is None
    assert divided("floordiv", 3, columns_of_lanes().moved(64), [0, 1]) is None
