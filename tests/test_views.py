"""Strided, broadcast and overlapping views run as they are; nothing outside of them is written."""

import ml_dtypes
import numpy as np
import pytest

from tests.kernels import CASES
from tests.views import VIEWS, K, N, View
from wsdsl.artifact.signature import MapArgument
from wsdsl.diagnostics import LaunchError
from wsdsl.runtime.arrays.interop import describe
from wsdsl.runtime.tensor_map_encoding import tiled_map

BF16 = ml_dtypes.bfloat16
KERNEL = CASES["batched"].kernel


def array(view: View, seed: int | None = None) -> np.ndarray:
    """The view of a buffer that begins at a multiple of 16 bytes; NaN without a seed."""
    raw = np.full(view.size + 8, np.nan, BF16)
    start = -raw.ctypes.data % 16 // 2
    buffer = raw[start : start + view.size]
    if seed is not None:
        buffer[...] = np.random.default_rng(seed).standard_normal(view.size).astype(BF16)
    strides = [2 * s for s in view.strides]
    return np.lib.stride_tricks.as_strided(buffer[view.offset :], view.shape, strides)


def buffer_of(held: np.ndarray) -> np.ndarray:
    while isinstance(held.base, np.ndarray):
        held = held.base
    return held


@pytest.mark.parametrize("name", VIEWS)
def test_simulated(name: str) -> None:
    a, b, c = (array(v, s) for v, s in zip(VIEWS[name], (1, 2, None), strict=True))
    KERNEL.simulate(a, b, c)
    want = a.astype(float) @ b.astype(float).transpose(0, 2, 1)
    assert np.linalg.norm(c.astype(float) - want) <= 2**-8 * np.linalg.norm(want)
    assert np.isfinite(buffer_of(c).astype(float)).sum() == c.size


def test_rows_backwards() -> None:
    view = VIEWS["contiguous"]
    a, b, c = (array(v, s) for v, s in zip(view, (1, 2, None), strict=True))
    KERNEL.simulate(a[:, ::-1], b[::-1], c)
    want = a[:, ::-1].astype(float) @ b[::-1].astype(float).transpose(0, 2, 1)
    assert np.linalg.norm(c.astype(float) - want) <= 2**-8 * np.linalg.norm(want)


def test_columns_backwards_are_refused() -> None:
    a, b, c = (array(v, 1) for v in VIEWS["contiguous"])
    with pytest.raises(LaunchError, match="last axis has stride -1, expected 1"):
        KERNEL.simulate(a[:, :, ::-1], b, c)


def test_a_broadcast_batch_has_a_tensor_map() -> None:
    """TMA takes strides that are multiples of 16, of which 0 is one."""
    view = describe(array(VIEWS["one for all batches"][1], 1))
    made = tiled_map(view, MapArgument("B", (1, 64, 64), "128B"))
    assert (made.dims, made.strides) == ((K, N, 3), (2 * K, 0))
