"""Tensors of fragments: every thread moves 16 bytes at once, adjacent to the next thread's."""

import re

from tests.codegen.support import assembled, kernel_of, needs_ptxas, ptx_of
from wsdsl.ir.op import Kernel

SETUP = """
launch_grid(tiles=(("M", 64),), scheduler="split_k", splits=2, contraction=(("K", 64),))
%P: tensor<DTYPE[lines, 128]> = allocate_global(each=128, fragments=True)
"""
BODY = """
%i: i32 = cta_index()
%c64: i32 = constant(value=64)
%c128: i32 = constant(value=128)
%start: i32 = map(fn="mul", args=(%i, %c128))
%r: frag<i32[64x1]> = iota(start=%start)
%c: frag<i32[1x32]> = iota(start=%c64)
%x: frag<DTYPE[64x32]> = load_global(tensor=%P, index=(%r, %c), vector=2)
%y: frag<DTYPE[64x32]> = map(fn="add", args=(%x, %x))
store_global(tensor=%P, index=(%r, %c), value=%y, vector=2)
store_global(tensor=%P, index=(%r, %c), value=%x, accumulate=True)
"""


def kernel(dtype: str = "f32") -> Kernel:
    params = "%A: tensor<f32[M, K]>"
    return kernel_of(BODY.replace("DTYPE", dtype), params, SETUP.replace("DTYPE", dtype))


def offsets(ptx: str, what: str) -> list[int]:
    """Constants of the accesses, which all have one register."""
    found = re.findall(rf"@%p\d+ {what} .*?\[(%rd\d+)(\+\d+)?\]", ptx)
    assert len({register for register, _ in found}) == 1
    return [int(constant or 0) for _, constant in found]


@needs_ptxas
def test_blocks_follow_each_other() -> None:
    ptx = assembled(kernel()).ptx
    blocks = [0, 2048, 4096, 6144]
    assert offsets(ptx, r"ld\.global\.v4\.b32") == blocks
    assert offsets(ptx, r"st\.global\.v4\.b32") == blocks
    assert offsets(ptx, r"red\.global\.add\.v4\.f32") == blocks


@needs_ptxas
def test_integers_are_added_one_by_one() -> None:
    found = offsets(assembled(kernel("i32")).ptx, r"red\.global\.add\.s32")
    assert found == [2048 * block + 4 * i for block in range(4) for i in range(4)]


def test_where_a_thread_has_its_part() -> None:
    """Line 128 i of 512 bytes; column 64: block 8 of 2048 bytes; 16 bytes per thread."""
    ptx = ptx_of(kernel())
    assert re.search(
        r"shl\.b32\s+(%r\d+), %r\d+, 7;\s.*mul\.wide\.s32\s+%rd\d+, \1, 512;", ptx, re.S
    )
    assert re.search(r"shl\.b32\s+(%r\d+), %r\d+, 4;\s+and\.b32\s+%r\d+, \1, 2032;", ptx)
    assert re.search(r"add\.s64\s+%rd\d+, %rd\d+, 16384;", ptx)
