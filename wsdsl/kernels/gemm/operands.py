"""Check the arguments of a matmul call; derive sizes by axis and the strides of each array."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from wsdsl.diagnostics import LaunchError
from wsdsl.ir.types import DTYPES, DType
from wsdsl.kernels.gemm.matmul_dtypes import (
    ADDENDS,
    OUTPUTS,
    RESIDUALS,
    TWO_DTYPES,
    default_output,
    dtype_of,
    operand_views,
    wrong_dtype,
    wrong_shape,
)
from wsdsl.kernels.gemm.matmul_source import Form, Param, is_float_result
from wsdsl.kernels.gemm.scales import (
    Reading,
    as_matrix,
    batch_of,
    blocks,
    broadcasts,
    contiguous,
    inner_sizes,
    likely,
    no_scales,
    readings,
    viewed,
    wrong_batch,
)
from wsdsl.kernels.gemm.strided import Strides, batch_axes, strides_of
from wsdsl.record import record
from wsdsl.runtime.arrays.views import ArrayView, adapt, normalise, overlaps_itself

ARRAYS = ("a", "b", "scale_a", "scale_b", "bias", "residual", "out")
"""The arrays that a call may pass, by name."""


@record
class Options:
    """Arguments of a call other than arrays. `numbers`: scales that are Python numbers."""

    activation: str | None = None
    out_dtype: Any = None
    accumulate: bool = False
    transpose_a: bool = False
    transpose_b: bool = False
    operand_dtype: Any = None
    numbers: tuple[str, ...] = ()


class Operands:
    """`strides` and `axes` (those after the batch's) are by the names in ARRAYS; `shape` and `out`
    are the result's. LaunchError for what does not fit.
    """

    def __init__(self, views: Mapping[str, ArrayView], options: Options) -> None:
        self.views = {x: normalise(v) if v.is_empty else v for x, v in views.items()}
        self.options = options
        both, self.total = operand_views(self.views["a"], self.views["b"], options.operand_dtype)
        self.views["a"], self.views["b"] = both
        transposed = options.transpose_a, options.transpose_b
        a = as_matrix("a", both[0], transposed[0], ("M", "K"))
        b = as_matrix("b", both[1], transposed[1], ("K", "N"))
        self.batch = batch_of(a.shape, b.shape)
        m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
        if b.shape[-2] != k:
            raise LaunchError(inner_sizes(both, transposed, k, b.shape[-2]))
        self.sizes = {"M": m, "K": k, "N": n, "KB": blocks(k), "MB": blocks(m), "NB": blocks(n)}
        self.sizes |= zip(batch_axes(len(self.batch)), self.batch)
        rows = (m,) if len(both[0].shape) > 1 else ()
        columns = (n,) if len(both[1].shape) > 1 else ()
        self.shape = (*self.batch, *rows, *columns)
        self.strides: dict[str, Strides] = {}
        self.axes: dict[str, tuple[str, ...]] = {}
        self.add("a", a, ("M", "K"))
        self.add("b", b, ("K", "N"))
        self.scales()
        self.bias()
        self.residual()
        self.out = self.output()

    def add(self, name: str, view: ArrayView, axes: tuple[str, ...]) -> None:
        self.axes[name] = axes
        self.strides[name] = strides_of(view.shape, view.strides, axes, len(self.batch))

    def form(self, params: Mapping[str, Param | None], batch: tuple[str, ...] = ()) -> Form:
        a, b, out = params["a"], params["b"], params["out"]
        assert a is not None and b is not None and out is not None
        return Form(
            a, b, out, batch, params["scale_a"], params["scale_b"], params["bias"],
            self.options.activation, params["residual"], self.options.accumulate,
        )  # fmt: skip

    def scales(self) -> None:
        found: dict[str, list[Reading]] = {"scale_a": [], "scale_b": []}
        for name, of, rows in (("scale_a", "a", "M"), ("scale_b", "b", "N")):
            view = self.views.get(name)
            if view is None:
                continue
            own = max(0, len(self.views[of].shape) - 2)
            readings_of = partial(readings, view, rows, self.sizes, self.batch, own)
            found[name] = readings_of(along_k=not self.total.is_integer)
            if not found[name] and readings_of(along_k=True):
                message = f"WS0811 {name} has block scale factors; the accumulator is an integer"
                raise LaunchError(message, hint="give one scale factor per row, or one in all")
            if view.dtype.name != "f32":
                raise wrong_dtype(name, view.dtype, ("f32",))
            if not found[name]:
                raise LaunchError(no_scales(name, view, rows, self.sizes))
        for name, other in (("scale_a", "scale_b"), ("scale_b", "scale_a")):
            if found[name]:
                self.add(name, *likely(found[name], found[other]))

    def bias(self) -> None:
        view = self.views.get("bias")
        if view is None:
            return
        self.check_dtype("bias", view.dtype, ADDENDS)
        if not view.shape or view.shape[-1] != self.sizes["N"]:
            raise wrong_shape("bias", view.shape, f"[{self.sizes['N']}], one per column")
        self.add("bias", self.check_batch("bias", view, 1), ("N",))

    def residual(self) -> None:
        view = self.views.get("residual")
        if view is None:
            return
        self.check_dtype("residual", view.dtype, RESIDUALS)
        self.add("residual", self.like_result("residual", view), ("M", "N"))

    def output(self) -> DType:
        """The result's type, of `out` if it is given."""
        given, view = self.options.out_dtype, self.views.get("out")
        if given is not None:
            found = dtype_of(given, "out_dtype")
        elif view is not None:
            found = view.dtype
        else:
            found = default_output(self.views["a"].dtype, self.total, is_float=self.is_float())
        self.check_dtype("out" if view is not None else "out_dtype", found, OUTPUTS)
        if view is None:
            if self.options.accumulate:
                raise LaunchError("WS0812 accumulate=True needs out", hint="give out")
            # Contiguous, as it will be allocated.
            self.views["out"] = view = contiguous(self.views["a"], self.shape, found)
        elif adapt(view, found).dtype != found:
            raise LaunchError(f"{TWO_DTYPES} {view.dtype} and {found}", hint="leave one out")
        elif view.shape != self.shape:
            raise wrong_shape("out", view.shape, self.shape)
        elif overlaps_itself(view):
            message = f"WS0813 out has strides {view.strides}: its elements share memory"
            raise LaunchError(message, hint="give an array with separate elements")
        self.add("out", self.like_result("out", view), ("M", "N"))
        return found

    def is_float(self) -> bool:
        """Whether the epilogue makes a float of the sum."""
        dtypes = dict.fromkeys(self.options.numbers, DTYPES["f32"])
        dtypes |= {x: self.views[x].dtype for x in self.axes}
        params = {x: Param(x, dtypes[x]) if x in dtypes else None for x in ARRAYS}
        return is_float_result(self.form(params | {"out": Param("out", self.total)}))

    def check_dtype(self, name: str, dtype: DType, allowed: Sequence[str]) -> None:
        if dtype.name not in allowed:
            raise wrong_dtype(name, dtype, allowed)

    def check_batch(self, name: str, view: ArrayView, rank: int) -> ArrayView:
        """The array with at most the result's batch dimensions, each of the result's size or 1."""
        while len(view.shape) - rank > len(self.batch) and view.shape[0] == 1:
            view = viewed(view, view.shape[1:], view.strides[1:])
        lead = view.shape[: len(view.shape) - rank]
        if not broadcasts(lead, self.batch):
            raise wrong_batch(name, lead, "the result", self.batch)
        return view

    def like_result(self, name: str, view: ArrayView) -> ArrayView:
        """With an axis of size 1 where an operand that is a vector leaves none."""
        vectors = [len(self.views[x].shape) == 1 for x in "ab"]
        tail = self.shape[len(self.batch) :]
        if len(view.shape) < len(tail) or view.shape[len(view.shape) - len(tail) :] != tail:
            raise wrong_shape(name, view.shape, self.shape)
        shape, strides = view.shape, view.strides
        if vectors[1]:
            shape, strides = (*shape, 1), (*strides, 1)
        if vectors[0]:
            shape, strides = (*shape[:-1], 1, shape[-1]), (*strides[:-1], 0, strides[-1])
        return self.check_batch(name, viewed(view, shape, strides), 2)
