"""Elements of 4 and 6 bits, and exponents: loads, conversions and stores, register by register.
sm_90a has no instructions for them.
"""

from typing import Any

import numpy as np
import pytest

from tests.codegen.ptx_interpreter import Memory, Program
from tests.codegen.run_warp import run_warp
from tests.codegen.support import kernel_of, ptx_of
from tests.codegen.test_register_operands import image
from wsdsl.codegen.arithmetic.literals import literal
from wsdsl.ir.types import DTYPES
from wsdsl.simulator.reference.arithmetic import convert, numpy_dtype, round_float
from wsdsl.simulator.reference.bound_arrays import bytes_of, elements_of

ROWS, COLUMNS = 16, 64
BODY = """
%zero: i32 = constant(value=0)
%r: frag<i32[64x1]> = iota(start=%zero)
%c: frag<i32[1x64]> = iota(start=%zero)
%x: frag<{source}[64x64]> = load_global(tensor=%X, index=({index}), vector={vector})
%y: frag<{target}[64x64]> = cast(x=%x)
store_global(tensor=%Y, index=(%r, %c), value=%y, vector=2)
"""
SMALL = ("f4e2m1", "f6e2m3", "f6e3m2", "f8e8m0")
NIBBLES = ("i4", "u4", "f4e2m1")


def stored(x: Any, source: str, target: str, *, across: bool = False) -> Any:
    """The stores of a warp for the 16 rows that it converts; `across`: the columns of X."""
    body = BODY.format(
        source=source, target=target, index="%c, %r" if across else "%r, %c", vector=2 - across
    )
    kernel = kernel_of(body, f"%X: tensor<{source}[A, B]>, %Y: tensor<{target}[M, N]>")
    known = dict(zip("ABMN", (*x.shape, ROWS, COLUMNS)))
    size = DTYPES[target].size(ROWS * COLUMNS)
    made = run_warp(kernel, known, {"X": bytes_of(x, DTYPES[source])}, "Y", size)
    return elements_of(made.reshape(ROWS, -1), DTYPES[target])


def numbers(name: str) -> Any:
    """All values of the type, values between and just outside, too large and too small, NaN."""
    dtype = DTYPES[name]
    codes = np.arange(1 << (8 if name == "f8e8m0" else dtype.bits if dtype.bits == 4 else 6))
    own = codes.astype(np.uint8).view(numpy_dtype(dtype)).astype(np.float64)
    known = np.unique(own[np.isfinite(own)])
    half = ((known[1:] + known[:-1]) / 2).astype(np.float32)
    beside = [np.nextafter(half, np.float32(to)) for to in (np.inf, -np.inf)]
    odd = np.float32([np.nan, np.inf, -np.inf, 3e38, -3e38, 0.0, -0.0, -1.0, 1e-45, -1e-45, 1e-38])
    found = np.concatenate([known.astype(np.float32), half, *beside, odd])
    return np.resize(found, (ROWS, COLUMNS))


@pytest.mark.parametrize("name", SMALL)
def test_floats_become_small(name: str) -> None:
    x = numbers(name)
    wanted = round_float(x, DTYPES[name]).view(np.uint8)
    assert np.array_equal(stored(x, "f32", name).view(np.uint8), wanted)


@pytest.mark.parametrize("name", SMALL)
def test_constants_are_what_is_converted(name: str) -> None:
    dtype, own = DTYPES[name], (1 << DTYPES[name].bits) - 1
    for value in np.unique(numbers(name)).tolist():
        wanted = int(round_float(np.float32(value), dtype).view(np.uint8))
        assert int(literal(value, dtype)) & own == wanted, value


@pytest.mark.parametrize("across", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("name", ["i4", "u4"])
def test_nibbles_become_integers(name: str, across: bool) -> None:
    shape = (COLUMNS, ROWS) if across else (ROWS, COLUMNS)
    raw = np.random.default_rng(0).integers(0, 256, (shape[0], shape[1] // 2)).astype(np.uint8)
    x = elements_of(raw, DTYPES[name])
    found = stored(x, name, "i32", across=across)
    assert np.array_equal(found, x.T if across else x)


PANELS = """
%zero: i32 = constant(value=0)
%st: state = initial_state(parity=0)
%r: frag<i32[64x1]> = iota(start=%zero)
%c: frag<i32[1x{columns}]> = iota(start=%zero)
%x: frag<{dtype}[64x{columns}]> = load_panels(shared=%smem, state=%st, start=%zero, rows=64,
  swizzle="{swizzle}")
%y: frag<i32[64x{columns}]> = cast(x=%x)
store_global(tensor=%Y, index=(%r, %c), value=%y, vector=2)
"""


@pytest.mark.parametrize(
    ("columns", "swizzle"),
    [(32, "none"), (64, "32B"), (128, "64B"), (128, "32B"), (256, "128B"), (64, "none")],
)
def test_nibbles_of_panels(columns: int, swizzle: str) -> None:
    """Lines of any width, of one panel or several."""
    raw = np.random.default_rng(columns).integers(0, 256, (64, columns // 2)).astype(np.uint8)
    wanted = elements_of(raw[:ROWS], DTYPES["i4"])
    assert np.array_equal(of_panels(raw, "i4", columns, swizzle), wanted)


def test_bools_of_panels() -> None:
    raw = np.random.default_rng(0).integers(0, 2, (64, 64)).astype(np.uint8)
    assert np.array_equal(of_panels(raw, "bool", 64, "64B"), raw[:ROWS])


def of_panels(raw: Any, dtype: str, columns: int, swizzle: str) -> Any:
    """The 16 rows of a warp, as integers."""
    setup = '%smem: shared<8192 x 1> = allocate_shared(label="smem", offset=0)'
    body = PANELS.format(dtype=dtype, columns=columns, swizzle=swizzle)
    kernel = kernel_of(body, "%Y: tensor<i32[M, N]>", setup)
    memory = Memory(1 << 20, bytearray(4 * 16 * columns), image(raw, swizzle))
    Program(ptx_of(kernel)).run_warps((1 << 20, columns, ROWS, columns), memory)
    made = np.array([memory.written[i] for i in range(len(memory.held))], np.uint8)
    return made.view(np.int32).reshape(ROWS, -1)


@pytest.mark.parametrize("target", NIBBLES)
def test_integers_become_nibbles(target: str) -> None:
    x = np.arange(-512, 512).astype(np.int32).reshape(ROWS, COLUMNS)
    wanted = convert(x, DTYPES["i32"], DTYPES[target])
    assert stored(x, "i32", target).tobytes() == wanted.tobytes()
