"""`quantize` of rows in the simulator, to the bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.rows.expected import CASES, drawn
from wsdsl import LaunchError
from wsdsl.kernels import matmul, quantize

CODES: dict[str, Any] = {
    "f8e4m3": (ml_dtypes.float8_e4m3fn, 448),
    "f8e5m2": (ml_dtypes.float8_e5m2, 57344),
    "i8": (np.int8, 127),
}


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


def test_infinities_and_nan() -> None:
    x = drawn(3, 200, dtype="bf16")
    x[0, 7], x[1, 150] = -np.inf, np.nan
    codes, scales = quantize(x)
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
    codes, scales = quantize(x, "int8", out)
    assert codes is out and scales.shape == (2, 3) and abs(out).max(-1).min() == 127
    with pytest.raises(LaunchError, match="codes of i4, expected f8e4m3, f8e5m2, i8"):
        quantize(x, "i4")
    with pytest.raises(LaunchError, match="out is i8, and out_dtype f8e4m3"):
        quantize(x, out=out)
