"""`quantize` of rows in the simulator, to the bit."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.case_data import rejects
from tests.rows.expected import CASES, drawn
from wsdsl.kernels import matmul, quantize

CODES: dict[str, Any] = {
    "f8e4m3": (ml_dtypes.float8_e4m3fn, 448),
    "f8e5m2": (ml_dtypes.float8_e5m2, 57344),
    "i8": (np.int8, 127),
}


@pytest.mark.sampled
@pytest.mark.parametrize("codes", CODES)
@pytest.mark.parametrize(("shape", "dtype"), CASES)
def test_right(shape: tuple[int, int], dtype: str, codes: str) -> None:
    kind, largest = CODES[codes]
    x = drawn(*shape, dtype=dtype)
    if shape[0] > 1:
        x[1] = 0
    got, scales = quantize(x, codes)
    held = x.astype(np.float32)
    most = np.maximum(abs(held).max(-1, initial=0), np.float32(2.0**-100))
    assert got.dtype == kind and scales.dtype == np.float32
    assert not shape[1] or np.array_equal(scales, most / np.float32(largest))
    ratio = np.clip(held * (np.float32(largest) / most)[:, None], -largest, largest)
    assert np.array_equal(got, (np.rint(ratio) if codes == "i8" else ratio).astype(kind))


@pytest.mark.parametrize("scales", ["f32", "f8e8m0"])
@pytest.mark.parametrize("block", [16, 32, 128, 256])
def test_blocks(block: int, scales: str) -> None:
    """The last one of a row is what is left of it."""
    x = drawn(2, 3, 300, dtype="bf16")
    x[1, 0, :40] = 0
    codes, got = quantize(x, block=block, scale_dtype=scales)
    many = -(-300 // block)
    cut = np.pad(x.astype(np.float32), ((0, 0), (0, 0), (0, -300 % block)))
    cut = cut.reshape(2, 3, many, block)
    ratio = np.maximum(abs(cut).max(-1), np.float32(2.0**-100)) / np.float32(448)
    if scales == "f8e8m0":
        power = np.exp2(np.ceil(np.log2(ratio.astype(np.float64))))
        assert np.array_equal(got.astype(np.float64), power)
        assert np.array_equal(codes, (x / power.repeat(block, -1)[..., :300]).astype(codes.dtype))
    else:
        assert np.array_equal(got, ratio)
        again = codes.astype(np.float64) * ratio.repeat(block, -1)[..., :300]
        assert (
            abs(again - x) <= 2.0**-4 * (1 + 1e-6) * abs(x.astype(np.float64)) + ratio.max()
        ).all()
    if (block, scales) == (32, "f8e8m0"):
        assert quantize(x, "mxfp8")[0].tobytes() == codes.tobytes()


def test_infinities_and_nan() -> None:
    x = drawn(3, 200, dtype="bf16")
    x[0, 7], x[1, 150] = -np.inf, np.nan
    codes, scales = quantize(x)
    blocks, powers = quantize(x, "mxfp8")
    powers = powers.astype(np.float32)
    assert powers[0, 0] == 2.0**127 and np.isnan(powers[1, 4]) and np.isnan(powers).sum() == 1
    assert np.isnan(blocks.astype(np.float32)).sum() == 1 + 32
    assert scales[0] == np.inf and np.isnan(scales[1]) and np.isfinite(scales[2])
    assert np.isnan(codes[0, 7]) and not np.isnan(codes[2].astype(np.float32)).any()


def test_codes_and_scales_are_what_matmul_takes() -> None:
    x, w = drawn(2, 3, 64, dtype="bf16"), drawn(24, 64, seed=1, dtype="bf16")
    (a, rows), (b, columns) = quantize(x), quantize(w)
    assert rows.shape == (2, 3)
    got = matmul(a.reshape(6, 64), b.T, scales=(rows.reshape(6), columns), out_dtype="f32")
    wanted = x.reshape(6, 64).astype(np.float64) @ w.T.astype(np.float64)
    assert np.linalg.norm(got - wanted) < 0.05 * np.linalg.norm(wanted)


def test_shapes_outputs_and_refusals() -> None:
    x: Any = drawn(2, 3, 40)
    out = np.zeros(x.shape, np.int8)
    codes, scales = quantize(x, "int8", out=out)
    assert codes is out and scales.shape == (2, 3) and abs(out).max(-1).min() == 127
    rejects("codes is i4, expected f8e4m3, f8e5m2, i8", quantize, x, "i4")
    rejects("different types: i8 and f8e4m3", quantize, x, out=out)
    rejects("scales is bf16, expected f32, f8e8m0", quantize, x, scale_dtype="bf16")
    rejects("block is 24, expected 16, 32, 64, 128, 256", quantize, x, block=24)
