"""Arrays as matrices whose rows are along their last axis."""

import math
from functools import lru_cache
from typing import Any, TypedDict

from wsdsl.diagnostics import LaunchError
from wsdsl.dispatch.dispatcher import OnMiss
from wsdsl.dispatch.kernel import Kernel
from wsdsl.kernels.checks import AS_BITS, type_of_addend, type_of_output
from wsdsl.kernels.gemm.matmul_dtypes import wrong_dtype, wrong_shape
from wsdsl.record import record
from wsdsl.runtime.arrays.interop import describe
from wsdsl.schedule import Schedule

FLOATS = ("f32", "f16", "bf16")


class Options(TypedDict, total=False):
    """Options of every call of a kernel."""

    schedule: Schedule | None
    stream: Any
    exact: bool | None
    on_miss: OnMiss | None


@record
class Rows:
    """`matrix` [M, N] of `array`, whose shape is `shape`."""

    array: Any
    matrix: Any
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> tuple[int, int]:
        """M, N."""
        return math.prod(self.shape[:-1]), self.shape[-1]

    def shaped(self, matrix: Any) -> Any:
        """A result [M, N] in the array's shape."""
        return matrix if self.matrix is self.array else matrix.reshape(self.shape)

    def typed(self, name: str, vector: Any) -> str | None:
        """The dtype name of a vector [N]; None if it is None."""
        return type_of_addend(name, vector, (self.size[1],), FLOATS)

    def per_row(self, name: str, values: Any) -> Any:
        """Values in f32, one for each row, as [M]."""
        type_of_addend(name, values, self.shape[:-1], ("f32",))
        return values.reshape(self.size[0])

    def output(self, out: Any, out_dtype: Any, kinds: tuple[str, ...] = FLOATS) -> tuple[Any, str]:
        """`out` as [M, N], or None, and the result's type."""
        dtype = type_of_output(out, out_dtype, self.shape, self.dtype, kinds)
        return None if out is None else out.reshape(self.size), dtype


def rows_of(name: str, array: Any, like: Rows | None = None) -> Rows:
    """Of an array [..., N] of f32, f16 or bf16, contiguous along its last axis. LaunchError for
    another one, or where its shape is not that of `like`.
    """
    view = describe(array, name)
    dtype = AS_BITS.get(view.dtype.name, view.dtype.name)
    if dtype not in FLOATS:
        raise wrong_dtype(name, view.dtype, FLOATS)
    if not view.shape:
        raise wrong_shape(name, (), "[..., N]")
    if like is not None and view.shape != like.shape:
        raise wrong_shape(name, view.shape, like.shape)
    if view.strides[-1] != 1 and view.shape[-1] > 1 and not view.is_empty:
        message = f"WS0847 {name} has strides {view.strides}, expected a contiguous last axis"
        raise LaunchError(message, hint="give a contiguous copy")
    size = math.prod(view.shape[:-1]), view.shape[-1]
    matrix = array if view.shape == size else array.reshape(size)
    return Rows(array, matrix, view.shape, dtype)


def rows_and_gradient(name: str, array: Any, grad: Any) -> tuple[Rows, Rows]:
    """Of an array, and of the gradient of what was made of it, whose shape is the same."""
    rows = rows_of(name, array)
    return rows, rows_of("grad", grad, rows)


@lru_cache(maxsize=1024)
def kernel_of(template: str, **parts: Any) -> Kernel:
    """The one kernel of a text with these parts."""
    from wsdsl.dispatch.sources import one_of

    text = template.lstrip().format(**parts)
    return one_of(text.split("def ", 1)[1].split("(", 1)[0], text, "<wsdsl.kernels.rows>")
