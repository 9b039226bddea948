"""`byte_of` and `join`: tables of bytes by an index of 4 bits, and two bytes as a float."""

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.case_table import matmul_text
from tests.codegen.test_register_operands import HALVES, every_byte, operand_of
from wsdsl import Schedule, parse
from wsdsl.ir.types import DTYPES
from wsdsl.simulator.reference.arithmetic import numpy_dtype
from wsdsl.simulator.reference.bound_arrays import unpack_nibbles

TABLES = np.random.default_rng(0).permutation(256).astype(np.uint8)[:32].reshape(2, 16)


def words(name: str, table: Any) -> str:
    numbers = table.view("<u4").tolist()
    return "\n".join(f"%{name}{i}: u32 = constant(value={n})" for i, n in enumerate(numbers))


LOOKED_UP = f"""
{words("h", TABLES[0])}
{words("l", TABLES[1])}
%high: frag<u8[64x64]> = map(fn="byte_of", args=(%x, %h0, %h1, %h2, %h3))
%low: frag<u8[64x64]> = map(fn="byte_of", args=(%x, %l0, %l1, %l2, %l3))
%cast: frag<{{dtype}}[64x64]> = map(fn="join", args=(%high, %low))
"""


@pytest.mark.parametrize("order", ["32B", "packed32"])
@pytest.mark.parametrize("dtype", HALVES)
def test_tables_by_an_index_of_4_bits(order: str, dtype: Any) -> None:
    """All pairs of indices, at each position, with any other indices in the word."""
    lines = every_byte(32)
    index = unpack_nibbles(lines, DTYPES["u4"], 64).astype(int)
    wanted = TABLES[0][index].astype(np.uint16) << 8 | TABLES[1][index]
    found = operand_of(lines, dtype, order, LOOKED_UP, source="u4")
    assert found.tobytes() == wanted.tobytes()


THREE_BITS_OF_A_CODE = f"""
{words("h", TABLES[0])}
%c8: u8 = constant(value=8)
%c4: u8 = constant(value=4)
%found: frag<u8[64x64]> = map(fn="byte_of_8", args=(%x, %h0, %h1))
%code: frag<u8[64x64]> = cast(x=%x)
%fourth: frag<u8[64x64]> = map(fn="and", args=(%code, %c8))
%sign: frag<u8[64x64]> = map(fn="shl", args=(%fourth, %c4))
%high: frag<u8[64x64]> = map(fn="xor", args=(%found, %sign))
%cast: frag<{{dtype}}[64x64]> = map(fn="join", args=(%high, %code))
"""


@pytest.mark.parametrize("order", ["32B", "packed32"])
def test_three_bits_look_up_and_the_fourth_is_moved(order: str) -> None:
    """Nibbles as bytes, at hand in words or not."""
    lines = every_byte(32)
    code = unpack_nibbles(lines, DTYPES["u4"], 64).astype(np.uint16)
    high = TABLES[0][code & 7] ^ (code & 8) << 4
    found = operand_of(lines, ml_dtypes.bfloat16, order, THREE_BITS_OF_A_CODE, source="u4")
    assert found.tobytes() == (high << 8 | code).astype(np.uint16).tobytes()


ONE_OF_A_LINE = """
%line: frag<i32[64x1]> = map(fn="and", args=(%r, %fifteen))
%nibble: frag<u4[64x1]> = cast(x=%line)
%row: frag<u8[64x1]> = map(fn="byte_of", args=(%nibble, %h0, %h1, %h2, %h3))
%cast: frag<{dtype}[64x64]> = map(fn="join", args=(%row, %x))
"""


@pytest.mark.parametrize("order", ["64B", "packed64"])
def test_bytes_of_stages_and_of_rows(order: str) -> None:
    """One index for all of a line, with bytes that come as pairs."""
    lines = every_byte(64)
    made = words("h", TABLES[0]) + "\n%fifteen: i32 = constant(value=15)" + ONE_OF_A_LINE
    found = operand_of(lines, ml_dtypes.bfloat16, order, made)
    wanted = TABLES[0][:, None].astype(np.uint16) << 8 | lines
    assert found.tobytes() == wanted.tobytes()


TEXT = matmul_text(
    "looked_up(X: bf16[M, K], W: u4[N, K], T: {dtype}[{size}], Y: f32[M, N])",
    "X[m, k] @ cast(lookup(T, W[n, k]), bf16)",
    "Y[m, n] = acc",
)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("dtype", "size"), [("i8", 16), ("u8", 11), ("f8e4m3", 16)])
@pytest.mark.parametrize("decode", ["registers", "shared"])
def test_lookups_are_found(dtype: str, size: int, decode: Any) -> None:
    """Indices past the end of a short table read 0."""
    (own,) = vars(parse(TEXT.format(dtype=dtype, size=size))).values()
    rng, schedule = np.random.default_rng(5), Schedule(operand_transform=decode)
    x = (rng.integers(-8, 9, (24, 96)) / 4).astype(ml_dtypes.bfloat16)
    w = rng.integers(0, 256, (72, 48)).astype(np.uint8)
    t = rng.integers(0, 120, size).astype(np.uint8)
    t = t.view(numpy_dtype(DTYPES[dtype]))
    values = np.concatenate([t.astype(np.float64), np.zeros(16 - size)])
    index = unpack_nibbles(w, DTYPES["u4"], 96).astype(int)
    wanted = x.astype(np.float64) @ values[index].T
    assert np.allclose(own.simulate(x, w, t, None, schedule=schedule), wanted, rtol=1e-5)
    ptx = own.compile(schedule, M=24, N=72, K=96).ptx
    assert len(re.findall(r"ld\.global\S*8 ", ptx)) == size


BITS = """
%c15: u8 = constant(value=15)
%c96: u8 = constant(value=96)
%c3: u8 = constant(value=3)
%p: frag<u8[64x64]> = map(fn="and", args=(%x, %c15))
%q: frag<u8[64x64]> = map(fn="xor", args=(%c96, %x))
%r1: frag<u8[64x64]> = map(fn="shl", args=(%q, %c3))
%r2: frag<u8[64x64]> = map(fn="shr", args=(%q, %c3))
%high: frag<u8[64x64]> = map(fn="or", args=(%p, %r1))
%cast: frag<{dtype}[64x64]> = map(fn="join", args=(%high, %r2))
"""


@pytest.mark.parametrize("order", ["64B", "packed64"])
def test_bits_of_bytes(order: str) -> None:
    """No bit crosses into an adjacent byte."""
    lines = every_byte(64)
    found = operand_of(lines, ml_dtypes.bfloat16, order, BITS)
    other = lines ^ 96
    wanted = (lines & 15 | other << 3).astype(np.uint16) << 8 | other >> 3
    assert found.tobytes() == wanted.tobytes()
