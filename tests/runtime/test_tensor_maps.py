"""What is encoded for an array: CUDA's order is the innermost dimension first."""

import ml_dtypes
import numpy as np
import pytest

from wsdsl.artifact.signature import MapArgument
from wsdsl.diagnostics import LaunchError
from wsdsl.runtime.arrays.interop import describe
from wsdsl.runtime.arrays.views import tma_faults
from wsdsl.runtime.tensor_map_encoding import tiled_map

BF16 = ml_dtypes.bfloat16
BOX = MapArgument("A", (128, 64), "128B")


def aligned(*shape: int) -> np.ndarray:
    """An array whose address is a multiple of 16 bytes."""
    size = int(np.prod(shape)) if shape else 1
    raw = np.zeros(2 * size + 16, np.uint8)
    start = -raw.ctypes.data % 16
    return raw[start : start + 2 * size].view(BF16).reshape(shape)


def test_the_innermost_dimension_comes_first() -> None:
    view = describe(aligned(200, 136))
    made = tiled_map(view, BOX)
    assert (made.dims, made.strides, made.box) == ((136, 200), (272,), (64, 128))
    assert made.address == view.pointer


def test_rows_of_a_larger_array() -> None:
    view = describe(aligned(64, 256)[:, 8:72])
    assert tiled_map(view, BOX).strides == (512,)


def test_a_batch() -> None:
    view = describe(aligned(3, 40, 16))
    made = tiled_map(view, MapArgument("A", (1, 128, 16), "32B"))
    assert (made.dims, made.strides, made.box) == ((16, 40, 3), (32, 1280), (16, 128, 1))


def test_an_empty_tensor_is_mapped_to_zeros() -> None:
    made = tiled_map(describe(aligned(64, 0)), BOX, zeros=4096)
    assert (made.address, made.dims) == (4096, (1, 1))


@pytest.mark.parametrize(
    ("shape", "written", "words"),
    [
        ((8, 12), False, "stride of axis 0 is 24 bytes"),
        ((1, 12), False, ""),
        ((1, 12), True, "rows are 24 bytes long"),
        ((8, 16), True, ""),
        ((2, 2, 2, 2, 2, 8), False, "rank is 6"),
    ],
)
def test_what_tma_cannot_take(shape: tuple[int, ...], written: bool, words: str) -> None:
    faults = tma_faults(describe(aligned(*shape)), written=written)
    assert (words in "; ".join(faults)) if words else not faults


def test_a_misaligned_address() -> None:
    view = describe(aligned(4, 72)[:, 1:65])
    assert any("address" in fault for fault in tma_faults(view))
    with pytest.raises(LaunchError, match="no tensor map for A"):
        tiled_map(view, BOX)
