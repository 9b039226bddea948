"""`quantize` rounds to the nearest code; `weights` takes what others have quantised."""

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import wsdsl
from wsdsl import LaunchError
from wsdsl.kernels import lossless, quantized

BF16 = ml_dtypes.bfloat16


def normal(*shape: int, seed: int = 0) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) / 8).astype(np.float32)


def spread(scales: Any, group: int, shape: tuple[int, int]) -> Any:
    return np.repeat(scales.astype(np.float64), group, 1)[:, : shape[1]]


@pytest.mark.parametrize("dtype", ["i4", "u4", "i8", "u8"])
def test_integers_are_off_by_half_a_scale(dtype: str) -> None:
    """But for the scale's own rounding, which the largest codes see."""
    w = normal(40, 200)
    made = quantized.quantize(w, dtype, 64, scale_dtype="f32")
    scales = spread(made.scales, 64, w.shape)
    assert np.all(abs(made.dequantize("f64") - w) <= scales * 0.5001)


@pytest.mark.parametrize(("dtype", "bits"), [("f8e4m3", 4), ("f8e5m2", 3)])
def test_floats_are_off_by_half_a_unit(dtype: str, bits: int) -> None:
    w = normal(40, 200)
    made = quantized.quantize(w, dtype)
    least = made.scales[:, None] * 2.0 ** (-6 if bits == 4 else -14)
    off = abs(made.dequantize("f64") - w)
    assert np.all(off <= np.maximum(abs(w), least) * 2.0**-bits * 1.001)


def test_scales_of_mxfp4_are_those_of_ocp() -> None:
    """Powers of two by the largest weight, whose own exponent is 2; beyond 6 it saturates."""
    w = np.zeros((2, 32), np.float32)
    w[0, :3], w[1, 5] = (7.9, -4.0, 0.5), 2.0**-100
    made = quantized.quantize(w, "mxfp4")
    assert made.scales.astype(np.float64).ravel().tolist() == [1.0, 2.0**-102]
    assert made.dequantize("f64")[0, :3].tolist() == [6.0, -4.0, 0.5]
    assert made.dequantize("f64")[1, 5] == 2.0**-100


def test_nvfp4_has_a_scale_of_the_whole() -> None:
    w = normal(16, 64) * 1e-6
    made = quantized.quantize(w, "nvfp4")
    assert made.scales.dtype == ml_dtypes.float8_e4m3fn and made.scales.shape == (16, 4)
    assert float(made.scales.astype(np.float32).max()) == 448
    # Codes are a sixth of the largest apart there, and scales are off by a sixteenth.
    assert np.all(abs(made.dequantize("f64") - w) <= abs(w).max() / 4)


def test_zeros_and_what_is_small_stay_so() -> None:
    w = np.zeros((3, 64), np.float32)
    w[1, 3] = 1e-38
    for dtype in "i4", "u4", "f8e4m3", "nvfp4", "mxfp4":
        assert np.all(abs(quantized.quantize(w, dtype).dequantize("f64")) <= 1e-37)


def test_given_codes_mean_the_same() -> None:
    codes = np.random.default_rng(0).integers(0, 16, (8, 64)).astype(np.uint8)
    pairs, scales = codes[:, ::2] | codes[:, 1::2] << 4, abs(normal(8, 2)) + 1
    signed = (codes.astype(np.float64) - 8) * np.repeat(scales, 32, 1)
    for given, dtype, zeros in (
        (pairs, "u4b8", None),
        (pairs ^ 0x88, "i4", None),
        (pairs, "u4", np.full((8, 2), 8)),
        ((codes ^ 8).view(np.int8).astype(ml_dtypes.int4), None, None),
        (codes + 120, "u8b128", None),
        (pairs.view(np.int32), "u4b8", None),
        ((codes + 120).view(np.int32), "u8b128", None),
        ((codes.astype(np.int8) - 8).view(np.uint32), "i8", None),
        (np.asfortranarray(codes.astype(np.int8) - 8), np.int8, None),
        ((codes.astype(np.int8) - 8), None, None),
    ):
        for pack in True, False:
            made = quantized.weights(given, scales, zeros, dtype=dtype, group=32, pack=pack)
            assert np.array_equal(made.dequantize("f64"), signed), dtype
            assert np.array_equal(made.pack().plain().dequantize("f64"), signed)
            assert made.shape == (8, 64) and made.group == (1, 32)


@pytest.mark.parametrize("shape", [(8, 64), (3, 32), (1, 32), (5, 90)])
@pytest.mark.parametrize("form", ["mxfp4", "nvfp4"])
def test_bytes_of_scales_are_those_of_the_format(form: str, shape: tuple[int, int]) -> None:
    w = normal(*shape)
    made = quantized.quantize(w, form, pack=False)
    group, wanted = 32 if form == "mxfp4" else 16, made.dequantize("f64")
    scales = made.scales.reshape(shape[0], -1)
    for given in scales, scales.view(np.uint8):
        for said in {"dtype": form}, {"dtype": "f4e2m1", "group": group}:
            for more in {}, {"scale_dtype": made.scale_dtype}:
                got = quantized.weights(made.codes, given, scale=made.scale, **said, **more)
                assert got.scale_dtype == made.scale_dtype and got.scales.dtype == scales.dtype
                assert np.array_equal(got.dequantize("f64"), wanted)
    x = normal(3, shape[1]).astype(BF16)
    assert np.array_equal(quantized.matmul(x, got), quantized.matmul(x, made))
    as_of_cupy = dataclasses.replace(made, scales=made.scales.view(np.uint8))
    assert np.array_equal(as_of_cupy.dequantize("f64"), wanted)
    assert as_of_cupy.to(w).scales.tobytes() == made.scales.tobytes()


@pytest.mark.parametrize("name", ["f8e4m3", "f8e5m2", "f8e8m0", "bf16"])
def test_bits_of_scales(name: str) -> None:
    made = quantized.quantize(normal(8, 64), "i4", 32, scale_dtype=name, pack=False)
    bits = made.scales.view(f"u{made.scales.itemsize}")
    got = quantized.weights(
        made.codes, bits, dtype="i4", group=32, scale=made.scale, scale_dtype=name
    )
    assert np.array_equal(got.dequantize("f64"), made.dequantize("f64"))


def test_scales_tell_their_groups() -> None:
    codes = np.zeros((6, 96), np.int8)
    one, whole = np.float32([3]), np.ones((6, 1), np.float32)
    assert quantized.weights(codes, one).dims == ("1",)
    assert quantized.weights(codes, whole).dims == ("N",)
    assert quantized.weights(codes, np.ones((6, 3), BF16)).group == (1, 32)
    assert quantized.weights(codes, np.ones((2, 2), BF16), group=(4, 64)).dims == ("NB", "KB")


def test_types_by_any_name() -> None:
    for given in "int4", ml_dtypes.int4, np.dtype(ml_dtypes.int4), wsdsl.i4:
        assert quantized.quantize(normal(4, 8), given).dtype == "i4"


def test_one_number_is_a_scale() -> None:
    codes = np.arange(8, dtype=np.int8)[None]
    assert np.array_equal(quantized.weights(codes, 0.5).dequantize(), codes / 2)


def test_memory() -> None:
    made = quantized.quantize(normal(128, 256), "i4", 128)
    assert made.nbytes == 128 * 128 + 2 * 128 * 2
    assert str(made) == "i4 [128, 256], scales of 1 x 128: 4.12 bits per weight"


CODES = np.zeros((8, 64), np.int8)
MISTAKES: list[tuple[str, Any]] = [
    (
        r"codes are uint8: their type is ambiguous\n.*dtype=\"i4\"",
        lambda: quantized.weights(CODES.view(np.uint8), np.ones(8)),
    ),
    (
        r"scales have shape \(2, 8\), for weights of shape \(8, 64\) and group=32\n.*scales.T",
        lambda: quantized.weights(CODES, np.ones((2, 8), np.float32), group=32),
    ),
    (
        r"scales have shape \(8, 3\).*\n.*shape \(8, 2\), or one number",
        lambda: quantized.weights(CODES, np.ones((8, 3), np.float32), group=32),
    ),
    (
        r"scales have shape \(8, 5\).*\n.*\[N, K / group\] and group=",
        lambda: quantized.weights(CODES, np.ones((8, 5), np.float32)),
    ),
    (r"scales are float64, expected f32, f16", lambda: quantized.weights(CODES, np.ones(8))),
    (
        r"zeros has shape \(1,\), expected \(8,\), as scales",
        lambda: quantized.weights(CODES, np.ones(8, np.float32), np.zeros(1, np.int8)),
    ),
    (
        r"zeros are float32, expected integers\n.*round them",
        lambda: quantized.weights(CODES, np.ones(8, np.float32), np.zeros(8, np.float32)),
    ),
    (
        r"zeros range from 0 to 300, beyond i",
        lambda: quantized.weights(CODES, np.ones(8, np.float32), np.int32([*range(7), 300])),
    ),
    (
        r"zeros are given, but codes are f8e4m3",
        lambda: quantized.weights(
            CODES.view(ml_dtypes.float8_e4m3fn), np.ones(8, np.float32), np.zeros(8, np.int8)
        ),
    ),
    (r"type of codes is i3, expected i4, u4", lambda: quantized.quantize(CODES, "i3")),
    (r"weights is int8, expected f32, f16, bf16, f64", lambda: quantized.quantize(CODES, "i4")),
    (
        r"i4 has no zero points\n.*quantize to u4",
        lambda: quantized.quantize(normal(8, 64), "i4", zeros=True),
    ),
    (r"mxfp4 has groups of 32", lambda: quantized.quantize(normal(8, 64), "mxfp4", 64)),
    (
        r"elements that are not finite",
        lambda: quantized.quantize(np.full((2, 2), np.inf, np.float32)),
    ),
    *(
        (rf"of shape \({n}, {k}\), expected at least one row and one column\n.*leave out", call)
        for n, k in ((0, 64), (64, 0))
        for call in (
            lambda n=n, k=k: quantized.quantize(np.zeros((n, k), np.float32)),
            lambda n=n, k=k: quantized.weights(np.zeros((n, k), np.int8), 1.0),
            lambda n=n, k=k: lossless.pack(np.zeros((n, k), BF16)),
        )
    ),
    (
        r"scales are uint8: their type is ambiguous\n.*give scale_dtype=",
        lambda: quantized.weights(CODES, np.ones((8, 2), np.uint8), group=32),
    ),
    (
        r"scales are f32, but scale_dtype is f8e8m0\n.*and give dtype='f4e2m1'",
        lambda: quantized.weights(CODES, np.ones((8, 4), np.float32), dtype="mxfp4"),
    ),
    (
        r"scale_dtype is i4, expected f32",
        lambda: quantized.weights(CODES, np.ones(8, np.float32), scale_dtype="i4"),
    ),
    (r"codes of type list, expected an array", lambda: quantized.weights([1], 1.0, dtype="i8")),
    (r"zeros of type list, expected an array", lambda: quantized.weights(CODES, 1.0, [0])),
    (r"scale is 'one', expected one number", lambda: quantized.weights(CODES, 1.0, scale="one")),
    (r"group is 0, expected positive", lambda: quantized.quantize(normal(8, 64), "i4", 0)),
    (
        r"group is '128', expected positive integers\n.*as 128",
        lambda: quantized.quantize(normal(8, 64), "i4", "128"),  # pyright: ignore[reportArgumentType]
    ),
]


@pytest.mark.parametrize(("said", "call"), MISTAKES, ids=[said[:30] for said, _ in MISTAKES])
def test_mistakes_are_told_with_what_works(said: str, call: Any) -> None:
    with pytest.raises(LaunchError, match=said):
        call()
