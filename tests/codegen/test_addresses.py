"""Accesses that differ by constants share their address; bounds hold for any index."""

import re

from tests.codegen.support import kernel_of, ptx_of

CHUNKS = """
%zero: i32 = constant(value=0)
%r: frag<i32[64x1]> = iota(start=%zero)
%c64: i32 = constant(value=64)
%n1: i32 = map(fn="add", args=(%n, %c64))
%c0: frag<i32[1x64]> = iota(start=%n)
%c1: frag<i32[1x64]> = iota(start=%n1)
%x: frag<f32[1x64]> = load_global(tensor=%X, index=(%c0,), vector=2)
%y: frag<f32[1x64]> = load_global(tensor=%X, index=(%c1,), vector=2)
%z: frag<f32[64x64]> = load_global(tensor=%Z, index=(%r, %c1), vector=2)
%s: frag<f32[1x64]> = map(fn="add", args=(%x, %y))
%t: frag<f32[64x64]> = map(fn="add", args=(%s, %z))
store_global(tensor=%Y, index=(%r, %c1), value=%t, vector=2)
"""
PARAMS = "%X: tensor<f32[N]>, %Z: tensor<f32[M, N]>, %Y: tensor<f32[M, N]>, %n: i32"


def loads(ptx: str, kind: str) -> list[tuple[str, str]]:
    """(register, constant) of the addresses of vector accesses."""
    return re.findall(rf"{kind}\S*v2\S* .*\[(%rd\d+)(\+?\d*)\]", ptx)


def test_chunks_share_addresses() -> None:
    ptx = ptx_of(kernel_of(CHUNKS, PARAMS))
    found = loads(ptx, r"ld\.global\.nc")
    assert len(found) == 8 + 8 + 16
    # One for the vector, two rows per thread for the matrix.
    assert len({register for register, _ in found}) == 3
    assert len(set(found)) == len(found)
    assert len({register for register, _ in loads(ptx, r"st\.global")}) == 2


def test_stored_tensors_are_not_read_by_the_constant_path() -> None:
    body = CHUNKS.replace("store_global(tensor=%Y", "store_global(tensor=%Z")
    ptx = ptx_of(kernel_of(body, PARAMS))
    assert len(loads(ptx, r"ld\.global\.nc")) == 16
    assert len(loads(ptx, r"ld\.global")) == 16 + 16


def test_every_access_is_masked() -> None:
    ptx = ptx_of(kernel_of(CHUNKS, PARAMS))
    accesses = [line for line in ptx.splitlines() if re.search(r"\b(ld|st)\.global", line)]
    assert accesses
    assert all(line.strip().startswith("@") for line in accesses)
