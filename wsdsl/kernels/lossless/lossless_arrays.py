"""bf16 arrays of any framework as their bits in NumPy, and back to where they came from."""

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from wsdsl.kernels import host_arrays
from wsdsl.kernels.gemm.matmul_dtypes import wrong_dtype
from wsdsl.kernels.host_arrays import matrix_shape

Bits = NDArray[Any]
"""Of u16."""
Bytes = NDArray[Any]
"""Of u8."""
Ints = NDArray[Any]
Bools = NDArray[Any]
BF16 = np.dtype(ml_dtypes.bfloat16)


def bits_of(array: Any) -> Bits:
    """The bits of a bf16 matrix [N, K] as u16; u16 is read as the bits of bf16. LaunchError for
    another type or rank, or no elements.
    """
    kind = str(getattr(array, "dtype", type(array).__name__))
    name = kind.removeprefix("torch.")
    if name not in ("bfloat16", "uint16"):
        raise wrong_dtype("dtype of weights", name, ("bf16",))
    matrix_shape("weights", array)
    return np.ascontiguousarray(host_arrays.on_host(array)).view(np.uint16)


def placed_like(array: NDArray[Any], like: Any) -> Any:
    """The array of NumPy as one of `like`'s framework, on its device; of u16 as bf16."""
    return host_arrays.placed_like(array.view(BF16) if array.dtype == np.uint16 else array, like)


def on_host(array: Any) -> NDArray[Any]:
    """An array that `placed_like` made as NumPy has it; bf16 as u16."""
    return bits_of(array) if array.dtype.itemsize == 2 else host_arrays.on_host(array)
