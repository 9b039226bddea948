"""Each operation rounds once; integers wrap; conversions are the GPU's."""

import math

import ml_dtypes
import numpy as np
import pytest

from wsdsl.ir.types import DTYPES
from wsdsl.simulator.reference.arithmetic import (
    apply,
    contracted,
    convert,
    numpy_dtype,
    reduce,
    reinterpret,
)

F32, BF16, I32 = DTYPES["f32"], DTYPES["bf16"], DTYPES["i32"]


def test_bf16_rounds_once() -> None:
    x = np.array([1.0, 1.0], ml_dtypes.bfloat16)
    y = np.array([2.0**-8, 2.0**-8 * 1.5], ml_dtypes.bfloat16)
    assert apply("add", [x, y], BF16, BF16).astype(float).tolist() == [1.0, 1.0 + 2.0**-7]


def test_fma_keeps_the_product_exact() -> None:
    a = np.float32(1 + 2**-12)
    fused = apply("fma", [np.array(a), np.array(a), np.array(np.float32(-1))], F32, F32)
    assert fused == np.float32(2**-11 + 2**-24)


@pytest.mark.parametrize(
    ("fn", "wanted"),
    [
        ("exp2", lambda x: 2.0**x),
        ("rsqrt", lambda x: x**-0.5),
        ("sigmoid", lambda x: 1 / (1 + math.exp(-x))),
        ("gelu", lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2)))),
        ("silu", lambda x: x / (1 + math.exp(-x))),
        ("erf", math.erf),
        ("tanh", math.tanh),
        ("log2", math.log2),
    ],
)
def test_functions(fn, wanted) -> None:
    x = np.array([0.1, 0.5, 1.0, 3.25], np.float32)
    got = apply(fn, [x], F32, F32)
    np.testing.assert_allclose(got, [wanted(float(v)) for v in x], rtol=2e-7)


def test_integers_wrap_and_round_down() -> None:
    a = np.array([2**31 - 1, -7, -7, 5], np.int32)
    b = np.array([1, 2, -2, 0], np.int32)
    assert apply("add", [a, b], I32, I32).tolist() == [-(2**31), -5, -9, 5]
    assert apply("floordiv", [a, b], I32, I32).tolist()[1:3] == [-4, 3]
    assert apply("mod", [a, b], I32, I32).tolist()[1:3] == [1, -1]
    assert apply("shr", [a, np.full(4, 40, np.int32)], I32, I32).tolist() == [0, -1, -1, 0]
    assert apply("shl", [a, np.full(4, 40, np.int32)], I32, I32).tolist() == [0, 0, 0, 0]


def test_float_to_integer_truncates_and_saturates() -> None:
    x = np.array([-1.9, 1.9, 1e10, -np.inf, np.nan], np.float32)
    assert convert(x, F32, I32).tolist() == [-1, 1, 2**31 - 1, -(2**31), 0]
    assert convert(x, F32, DTYPES["u8"]).tolist() == [0, 1, 255, 0, 0]


def test_integer_to_narrower_integer_wraps() -> None:
    x = np.array([257, -1, 7, 8], np.int32)
    assert convert(x, I32, DTYPES["u8"]).tolist() == [1, 255, 7, 8]
    assert convert(x, I32, DTYPES["i4"]).tolist() == [1, -1, 7, -8]
    assert convert(x, I32, DTYPES["u4"]).tolist() == [1, 15, 7, 8]


def test_tf32_has_ten_bits_of_mantissa() -> None:
    x = np.array([1 + 2.0**-10, 1 + 2.0**-11, 1 + 2.0**-12], np.float32)
    got = convert(x, F32, DTYPES["tf32"])
    assert got.tolist() == [1 + 2.0**-10, 1 + 2.0**-10, 1.0]


def test_bitcast() -> None:
    assert reinterpret(np.array([0x3F80], np.uint16), DTYPES["u16"], BF16).astype(float) == 1.0
    assert reinterpret(np.array([15], np.uint8), DTYPES["u4"], DTYPES["i4"]).tolist() == [-1]


@pytest.mark.parametrize("name", ["f32", "bf16", "i32", "u8", "i4"])
def test_reductions_of_nothing_and_of_something(name: str) -> None:
    dtype = DTYPES[name]
    x = np.array([[1, 2, 3], [4, 0, 1]]).astype(numpy_dtype(dtype))
    assert reduce("add", x, dtype, 1).astype(int).tolist() == [6, 5]
    assert reduce("max", x, dtype, 1).astype(int).tolist() == [3, 4]
    assert reduce("min", x, dtype, 0).astype(int).tolist() == [1, 0, 1]
    assert reduce("add", x[:, :0], dtype, 1).astype(int).tolist() == [0, 0]


def test_larger_and_smaller_of_nan_and_of_zeros() -> None:
    """Like the GPU's `max.NaN` and `min.NaN`, in any order."""
    x = np.array([np.nan, 0.0, -0.0, -0.0, 1.0], np.float32)
    y = np.array([1.0, -0.0, 0.0, -0.0, -np.inf], np.float32)
    for a, b in ((x, y), (y, x)):
        most, least = (apply(fn, (a, b), F32, F32) for fn in ("max", "min"))
        assert np.isnan(most[0]) and np.isnan(least[0])
        assert np.signbit(most[1:]).tolist() == [False, False, True, False]
        assert np.signbit(least[1:]).tolist() == [True, True, True, True]
    zeros = np.tile(x[1:4], (2, 9))
    assert not np.signbit(reduce("max", zeros, F32, 1)).any()
    assert np.signbit(reduce("min", zeros, F32, 1)).all()
    assert np.isnan(reduce("max", x[None], F32, 1)).all()


def test_bits_of_nan() -> None:
    x = np.array([np.nan, -np.nan, 1.0], np.float32)
    assert reinterpret(x, F32, I32).tolist() == [0x7FFFFFFF, 0x7FFFFFFF, 0x3F800000]


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("columns", [1, 4])
@pytest.mark.parametrize("summed", [1, 5])
def test_infinity_times_zero(rows: int, columns: int, summed: int) -> None:
    """Whichever routine multiplies matrices of that shape."""
    a, b = np.zeros((rows, summed)), np.ones((summed, columns))
    b[0, 0] = np.inf
    product = contracted(a, b, ([1], [0]))
    assert np.isnan(product[:, 0]).all() and not product[:, 1:].any()
    assert np.isnan(contracted(b, a, ([0], [1]))[0]).all()
