"""Floats of 8 bits and fewer, and what is packed two to a byte: every code, against ml_dtypes."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import wsdsl
from wsdsl.diagnostics import LaunchError, TypeCheckError
from wsdsl.ir.ops import Map
from wsdsl.ir.types import DTYPES, Tile
from wsdsl.simulator.reference.arithmetic import convert, numpy_dtype, reinterpret, round_float

F32, U8 = DTYPES["f32"], DTYPES["u8"]
FLOATS = {
    "f8e4m3": (ml_dtypes.float8_e4m3fn, 256),
    "f8e5m2": (ml_dtypes.float8_e5m2, 256),
    "f8e8m0": (ml_dtypes.float8_e8m0fnu, 256),
    "f6e2m3": (ml_dtypes.float6_e2m3fn, 64),
    "f6e3m2": (ml_dtypes.float6_e3m2fn, 64),
    "f4e2m1": (ml_dtypes.float4_e2m1fn, 16),
}
PACKED = ("i4", "u4", "f4e2m1")


def codes_of(name: str) -> Any:
    return np.arange(FLOATS[name][1]).astype(np.uint8)


def values_of(name: str) -> Any:
    """Of all codes, in f32."""
    return codes_of(name).view(FLOATS[name][0]).astype(np.float32)


@pytest.mark.parametrize("name", FLOATS)
def test_every_code_is_its_value_and_back(name: str) -> None:
    dtype, values = DTYPES[name], values_of(name)
    held = codes_of(name).view(numpy_dtype(dtype))
    assert np.array_equal(convert(held, dtype, F32), values, equal_nan=True)
    back = round_float(values, dtype).view(np.uint8)
    number = np.isfinite(values)  # infinities saturate
    assert np.array_equal(back[number], codes_of(name)[number])


@pytest.mark.parametrize("name", FLOATS)
def test_values_between_round_to_nearest(name: str) -> None:
    """Halves, and what is a bit more or less, as ml_dtypes has it."""
    made, _ = FLOATS[name]
    known = np.unique(values_of(name)[np.isfinite(values_of(name))])
    half = ((known[1:].astype(np.float64) + known[:-1]) / 2).astype(np.float32)
    tried = np.concatenate([half, np.nextafter(half, np.float32(np.inf)), np.nextafter(half, 0)])
    # Below 2**-126 ml_dtypes rounds scales otherwise.
    tried = tried[tried > 2.0**-126] if name == "f8e8m0" else tried
    got = round_float(tried.astype(np.float32), DTYPES[name])
    assert np.array_equal(got.view(np.uint8), tried.astype(made).view(np.uint8))


@pytest.mark.parametrize("name", FLOATS)
def test_large_values_saturate(name: str) -> None:
    given = np.array([np.inf, 3.4e38, -np.inf, -3.4e38, np.nan, 0.0, -0.0], np.float32)
    got = round_float(given, DTYPES[name]).astype(np.float32).tolist()
    most = float(np.nanmax(np.where(np.isinf(values_of(name)), 0, values_of(name))))
    signed, nan = name != "f8e8m0", name in ("f8e4m3", "f8e5m2", "f8e8m0")
    assert got[:2] == [most, most]
    assert got[2:4] == [-most, -most] if signed else np.isnan(got[2:4]).all()
    assert np.isnan(got[4]) if nan else got[4] == most
    assert got[5:] == ([0.0, 0.0] if signed else [2.0**-127] * 2)


@pytest.mark.parametrize("name", FLOATS)
def test_bits_of_every_code(name: str) -> None:
    dtype, codes = DTYPES[name], codes_of(name)
    bits = DTYPES["u4"] if dtype.bits == 4 else U8
    held = reinterpret(codes, bits, dtype)
    assert np.array_equal(held.astype(np.float32), values_of(name), equal_nan=True)
    number = ~np.isnan(values_of(name))
    assert np.array_equal(reinterpret(held, dtype, bits)[number], codes[number])


# Kernels ------------------------------------------------------------------------------------------

WIDEN = """
@kernel
def widen(A: {0}[{1}], Y: f32[{2}]):
    for m, n in tiles(M, N):
        Y[{3}] = cast(A[{4}], f32)
"""
NARROW = WIDEN.replace("A: {0}", "A: f32").replace("Y: f32", "Y: {0}").replace("f32)", "{0})")


def rows_of(name: str, rows: int, columns: int) -> Any:
    """Numbers that the type has."""
    made = np.random.default_rng(rows).integers(0, 1 << DTYPES[name].bits, (rows, columns))
    if name in FLOATS:
        return values_of(name)[made % FLOATS[name][1]]
    return (made - 8 * (name == "i4")).astype(np.float32)


def packed_of(values: Any, name: str) -> Any:
    """Two to a byte, low nibble first; written out, and not as the compiler does it."""
    kind = dict(i4=np.int8, u4=np.uint8, f4e2m1=ml_dtypes.float4_e2m1fn)[name]
    codes = values.astype(kind).view(np.uint8) & 15
    return (codes[..., 0::2] + 16 * codes[..., 1::2]).astype(np.uint8)


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("order", [("M, N", "m, n"), ("N, M", "n, m")])
def test_packed_along_either_axis(name: str, order: tuple[str, str]) -> None:
    dims, index = order
    values = rows_of(name, 6, 10)
    stored = values if dims == "M, N" else rows_of(name, 10, 6)
    wanted = stored if dims == "M, N" else stored.T
    widen = wsdsl.parse(WIDEN.format(name, dims, "M, N", "m, n", index)).widen
    bytes_ = packed_of(stored, name)
    assert np.array_equal(widen.reference(bytes_), wanted)
    # Rows that lie apart.
    apart = np.full((bytes_.shape[0], 9), 255, np.uint8)
    apart[:, : bytes_.shape[1]] = bytes_
    assert np.array_equal(widen.reference(apart[:, : bytes_.shape[1]]), wanted)
    narrow = wsdsl.parse(NARROW.format(name, "M, N", dims, index, "m, n")).widen
    assert np.array_equal(narrow.reference(np.ascontiguousarray(wanted)), bytes_)


@pytest.mark.parametrize("name", ["f8e8m0", "f6e2m3", "f6e3m2"])
def test_one_to_a_byte(name: str) -> None:
    values = rows_of(name, 6, 10)
    widen = wsdsl.parse(WIDEN.format(name, "M, N", "M, N", "m, n", "m, n")).widen
    narrow = wsdsl.parse(NARROW.format(name, "M, N", "M, N", "m, n", "m, n")).widen
    held = values.astype(FLOATS[name][0])
    assert np.array_equal(widen.reference(held), values, equal_nan=True)
    made = narrow.reference(values)
    assert made.dtype == held.dtype
    assert np.array_equal(made.view(np.uint8), held.view(np.uint8))
    if name != "f8e8m0":
        bits = held.view(np.uint8)
        assert np.array_equal(widen.reference(bits | 0xC0), values)
        out = np.full(bits.shape, 0xFF, np.uint8)
        assert narrow.reference(values, out) is out
        assert np.array_equal(out, bits)


def test_an_odd_number_of_nibbles() -> None:
    text = WIDEN.format("f4e2m1", "M, N", "M, N", "m, n", "m, n")
    with pytest.raises(LaunchError, match=r"two elements of f4e2m1 per byte, .* N = 5"):
        wsdsl.parse(text).widen.reference(np.zeros((2, 3), np.uint8), np.zeros((2, 5), np.float32))
    narrow = wsdsl.parse(NARROW.format("u4", "M, N", "M, N", "m, n", "m, n")).widen
    with pytest.raises(LaunchError, match="pad all arrays to 6"):
        narrow.reference(np.zeros((2, 5), np.float32))
    with pytest.raises(TypeCheckError, match="rows of 5 i4 elements end within a byte"):
        _ = wsdsl.parse(WIDEN.format("i4", "M, 5", "M, N", "m, n", "m, 4")).widen.tile_ir


@pytest.mark.parametrize(
    ("number", "name", "told"),
    [
        ("7.0", "f4e2m1", "too large for f4e2m1"),
        ("30.0", "f6e3m2", "too large for f6e3m2"),
        ("7.75", "f6e2m3", "too large for f6e2m3"),
        ("inf", "f4e2m1", "f4e2m1 has no infinity"),
        ("inf", "f8e8m0", "f8e8m0 has no infinity"),
        ("0.0", "f8e8m0", "has only powers of two"),
    ],
)
def test_numbers_that_a_type_does_not_hold(number: str, name: str, told: str) -> None:
    text = f"@kernel\ndef k(Y: {name}[M, N]):\n    for m, n in tiles(M, N):\n"
    text += f"        Y[m, n] = full({name}[m, n], {number})\n"
    with pytest.raises(TypeCheckError, match=told):
        _ = wsdsl.parse(text).k.tile_ir


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("a + a", False), ("-a", False), ("abs(a)", False), ("a * 0.1", False), ("exp(a)", False),
        ("fma(a, a, a)", False), ("a / b", False), ("max(a, b)", False), ("max(a, a)", True),
        ("where(a > 0.3, a, 1.0)", True), ("min(a, 2.0)", True),
    ],
)  # fmt: skip
def test_results_are_f32(name: str, value: str, kept: bool) -> None:
    other = "f4e2m1" if name != "f4e2m1" else "f8e5m2"
    text = f"@kernel\ndef k(A: {name}[M, N], B: {other}[M, N], Y: f32[M, N]):\n"
    text += "    for m, n in tiles(M, N):\n        a, b = A[m, n], B[m, n]\n"
    text += "        y = {}\n        Y[m, n] = cast(y, f32)\n"
    last = [*wsdsl.parse(text.format(value)).k.tile_ir.of(Map)][-1].result.type
    assert isinstance(last, Tile)
    assert last.dtype.name == (name if kept else "f32")


def test_a_literal_is_not_rounded_unsaid() -> None:
    text = "@kernel\ndef k(A: f8e4m3[M, N], Y: f32[M, N]):\n    for m, n in tiles(M, N):\n"
    text += "        Y[m, n] = cast(max(A[m, n], 0.1), f32)\n"
    with pytest.raises(TypeCheckError, match=r"f8e4m3 cannot represent 0.1"):
        _ = wsdsl.parse(text).k.tile_ir
    rounded = wsdsl.parse(text.replace("0.1", "cast(0.1, f8e4m3)")).k
    a = np.zeros((2, 2), ml_dtypes.float8_e4m3fn)
    assert np.all(rounded.reference(a) == np.float32(ml_dtypes.float8_e4m3fn(0.1)))


def test_a_scalar_keeps_its_infinity() -> None:
    text = "@kernel\ndef k(X: f8e5m2[M], Y: f32[M]):\n    for m in each(M):\n"
    text += "        Y[m] = log(X[m])\n"
    x, y = np.array([np.inf, 1.0], ml_dtypes.float8_e5m2), np.zeros(2, np.float32)
    wsdsl.parse(text).k.simulate(x, y)
    assert list(y) == [np.inf, 0.0]


def test_tensors_of_torch(import_optional: Any) -> None:
    torch: Any = import_optional("torch")
    values = rows_of("f4e2m1", 6, 10)
    widen = wsdsl.parse(WIDEN.format("f4e2m1", "M, N", "M, N", "m, n", "m, n")).widen
    held = torch.from_numpy(packed_of(values, "f4e2m1"))
    for given in held, held.view(torch.float4_e2m1fn_x2):
        assert np.array_equal(widen.reference(given), values)
    scales = rows_of("f8e8m0", 6, 10)
    widen = wsdsl.parse(WIDEN.format("f8e8m0", "M, N", "M, N", "m, n", "m, n")).widen
    bits = torch.from_numpy(scales.astype(ml_dtypes.float8_e8m0fnu).view(np.uint8))
    got = widen.reference(bits.view(torch.float8_e8m0fnu))
    assert np.array_equal(got, scales, equal_nan=True)
    with pytest.raises(LaunchError, match="dtype is u8, expected f8e8m0"):
        widen.reference(bits)
