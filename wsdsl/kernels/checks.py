"""Check the arrays of a ready-made kernel other than its first."""

from typing import Any

from wsdsl.diagnostics import LaunchError
from wsdsl.kernels.gemm.matmul_dtypes import OUTPUTS, TWO_DTYPES, dtype_of, wrong_dtype, wrong_shape
from wsdsl.runtime.arrays.interop import describe
from wsdsl.runtime.arrays.views import contiguous_strides

AS_BITS = {"u16": "bf16"}
"""CuPy's type for the bits of a type that CuPy lacks, and that type."""


def type_of_addend(
    name: str, array: Any, shape: tuple[int, ...], kinds: tuple[str, ...]
) -> str | None:
    """The type of an array that may be left out."""
    if array is None:
        return None
    view = describe(array, name)
    if view.shape != shape:
        raise wrong_shape(name, view.shape, shape)
    if view.dtype.name not in kinds:
        raise wrong_dtype(name, view.dtype, kinds)
    return view.dtype.name


def type_of_output(
    out: Any, out_dtype: Any, shape: tuple[int, ...], default: str, kinds: tuple[str, ...] = OUTPUTS
) -> str:
    """That of `out`, or the one that is asked for, or else `default`."""
    wanted = None if out_dtype is None else dtype_of(out_dtype, "out_dtype").name
    if out is not None:
        view = describe(out, "out")
        if view.shape != shape or view.strides != contiguous_strides(shape):
            message = f"WS0803 out has shape {view.shape} and strides {view.strides}"
            raise LaunchError(message, hint=f"give a contiguous array of shape {shape}")
        if wanted not in (None, view.dtype.name):
            raise LaunchError(f"{TWO_DTYPES} {view.dtype} and {wanted}", hint="leave one out")
        wanted = view.dtype.name
    if wanted not in (None, *kinds):
        raise wrong_dtype("the result", wanted, kinds)
    return wanted or default
