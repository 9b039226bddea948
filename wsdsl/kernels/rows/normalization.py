"""Calls of the kernels of `layernorm` and `rmsnorm`, which differ in their texts alone."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from wsdsl.dispatch.kernel import Kernel
from wsdsl.kernels.rows.row_arrays import Options, Rows, kernel_of, rows_and_gradient, rows_of

Statistics = tuple[tuple[str, str], ...]
"""Names of outputs [M], and of their values in the text."""


def forward(
    template: str,
    x: Any,
    weight: Any,
    bias: Any,
    eps: float,
    out_dtype: Any,
    out: Any,
    options: Options,
    statistics: Statistics = (),
) -> tuple[Any, ...]:
    """The result, and the statistics, f32 [...]."""
    rows = rows_of("x", x)
    w, b = rows.typed("weight", weight), rows.typed("bias", bias)
    target, y = rows.output(out, out_dtype)
    kernel = _forward_kernel(template, rows.dtype, y, w, b, statistics)
    given = (rows.matrix, *(v for v in (weight, bias) if v is not None), eps, target)
    made = kernel(*given, *(None for _ in statistics), **options)
    result, *rest = made if statistics else (made,)
    first = rows.shaped(result) if out is None else out
    return first, *(r.reshape(rows.shape[:-1]) for r in rest)


@cache
def _forward_kernel(
    template: str, x: str, y: str, w: str | None, b: str | None, statistics: Statistics
) -> Kernel:
    params = (f" W: {w}[N]," if w else "") + (f" B: {b}[N]," if b else "")
    affine = (" * W[n]" if w else "") + (" + B[n]" if b else "")
    outputs = "".join(f", {name}: f32[M]" for name, _ in statistics)
    stores = "".join(f"\n        {name}[m] = {value}" for name, value in statistics)
    parts = dict(params=params, affine=affine, outputs=outputs, stores=stores)
    return kernel_of(template, x=x, y=y, **parts)


def backward(
    template: str,
    grad: Any,
    x: Any,
    weight: Any,
    statistics: Mapping[str, Any],
    out: Any,
    options: Options,
) -> Any:
    """The gradient of x."""
    rows, grads = rows_and_gradient("x", x, grad)
    w = rows.typed("weight", weight)
    target, _ = rows.output(out, rows.dtype)
    params, factor = (f" W: {w}[N],", " * W[n]") if w else ("", "")
    kernel = kernel_of(template, g=grads.dtype, x=rows.dtype, params=params, factor=factor)
    given = (grads.matrix, rows.matrix, *((weight,) if w else ()), *_kept(rows, statistics))
    made = kernel(*given, target, **options)
    return rows.shaped(made) if out is None else out


def weight_backward(
    template: str, grad: Any, x: Any, weight: Any, statistics: Mapping[str, Any], options: Options
) -> Any:
    """The gradient of the weight."""
    rows, grads = rows_and_gradient("x", x, grad)
    kernel = kernel_of(template, g=grads.dtype, x=rows.dtype, w=rows.typed("weight", weight))
    return kernel(grads.matrix, rows.matrix, *_kept(rows, statistics), **options)


def _kept(rows: Rows, statistics: Mapping[str, Any]) -> list[Any]:
    return [rows.per_row(name, values) for name, values in statistics.items()]
