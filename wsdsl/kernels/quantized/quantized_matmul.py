"""`quantized.matmul`: x @ weights.T, of weights that are dequantised in the kernel."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from wsdsl.diagnostics import LaunchError
from wsdsl.dispatch.callee import repeated_with_weights
from wsdsl.dispatch.dispatcher import OnMiss
from wsdsl.dispatch.kernel import Kernel
from wsdsl.dynamo import opaque
from wsdsl.ir.hardware.swizzle import PACKED_LINES
from wsdsl.ir.types import DTYPES
from wsdsl.kernels.checks import AS_BITS, type_of_addend, type_of_output
from wsdsl.kernels.gemm.matmul import Activation
from wsdsl.kernels.gemm.matmul_dtypes import ADDENDS, RESIDUALS, wrong_option, wrong_shape
from wsdsl.kernels.gemm.matmul_source import ACTIVATIONS
from wsdsl.kernels.quantized.quantized_source import Form, kernel_of
from wsdsl.kernels.quantized.quantized_weights import Weights
from wsdsl.kernels.torch_ops import traced_stored, with_gradient
from wsdsl.runtime.arrays.interop import describe
from wsdsl.runtime.arrays.packed import contiguous, with_zeros
from wsdsl.schedule import Schedule, as_schedule, with_constants

MOST_ROW_BYTES = 4096
"""Of codes: 64 registers per thread of eight warpgroups, two of whose threads share a row."""
TENSORS = {"codes": "W", "zeros": "zero_points"} | {x: x for x in ("scales", "table", "scale")}
"""The arrays of weights, by the names of `Weights`; values are the kernel's parameters."""


@repeated_with_weights
@partial(opaque, traced=traced_stored)
@partial(with_gradient, traced=traced_stored)
def matmul(
    x: Any,
    weights: Weights,
    bias: Any = None,
    activation: Activation | None = None,
    residual: Any = None,
    out_dtype: Any = None,
    out: Any = None,
    *,
    constant: bool = False,
    schedule: Schedule | None = None,
    stream: Any = None,
    exact: bool | None = None,
    on_miss: OnMiss | None = None,
) -> Any:
    """`activation(x @ w.T + bias) + residual` of the dequantized weights w [N, K].

    Scales per column, or one for all, multiply the accumulator in f32. Others multiply
    weights, which are rounded once to the type of x: `weights.dequantize(x.dtype)` has them so.
    Sums are in f32, and the result is rounded once.

    x: [..., K] of bf16 or f16, of the framework of the weights' arrays, where these are.
    bias: [N], of f32, f16, bf16 or i32.
    activation: "relu", "gelu" (the exact one), "silu", "sigmoid" or "tanh".
    residual: [..., N], added after the activation.
    out_dtype: as for `wsdsl.kernels.matmul`; that of x, if `out` does not tell it.
    out: [..., N], contiguous; written, and returned. Else allocated.
    constant: whether the kernel in front on the stream leaves the weights as they are: they may be
        loaded before it is complete. This is not checked; if it does write them, results may be
        wrong.
    schedule, stream, exact, on_miss: as for kernels.

    LaunchError for arrays that do not fit; nothing has been written then.
    """
    given = x, weights, bias, activation, residual, out_dtype, out
    arguments, kernel, shape = arranged(*given, tiled=schedule is not None)
    own = [kept for name, kept in TENSORS.items() if getattr(weights, name) is not None]
    wanted = with_constants(as_schedule(schedule), own if constant else ())
    made = kernel(*arguments, schedule=wanted, stream=stream, exact=exact, on_miss=on_miss)
    return made.reshape(shape) if out is None else out


def arranged(
    x: Any,
    weights: Weights,
    bias: Any = None,
    activation: Activation | None = None,
    residual: Any = None,
    out_dtype: Any = None,
    out: Any = None,
    *,
    tiled: bool = False,
) -> tuple[tuple[Any, ...], Kernel, tuple[int, ...]]:
    """The kernel's arguments, the kernel, and the result's shape. `tiled`: by tiles of several rows
    even where x has one, since a schedule names them.
    """
    held: Any = weights
    if not isinstance(held, Weights):
        raise wrong_option("weights", f"a {type(held).__name__}", "the result of quantized.weights")
    view, (n, k) = describe(x, "x"), weights.shape
    if not view.shape or view.shape[-1] != k:
        raise wrong_shape("x", view.shape, f"[..., {k}] for weights of shape {(n, k)}")
    whole = (*view.shape[:-1], n)
    rows = math.prod(view.shape[:-1])
    kind = AS_BITS.get(view.dtype.name, view.dtype.name)
    vector = rows == 1 and not tiled and _is_short(weights)
    options: dict[str, Any] = dict(
        out=type_of_output(out, out_dtype, whole, kind),
        bias=type_of_addend("bias", bias, (n,), ADDENDS),
        activation=activation,
        residual=type_of_addend("residual", residual, whole, RESIDUALS),
        vector=vector,
    )
    key = kind, *options.values()
    kernel = weights.kernels.get(key)
    if kernel is None:
        kernel = weights.kernels[key] = kernel_of(_form(kind, weights, options))
    x = x if weights.order is None else contiguous(x[..., weights.order])
    matrix, outer = with_zeros(x, [(0, weights.width - k)]), () if vector else (rows,)
    given = [
        matrix if len(whole) == len(outer) + 1 else matrix.reshape(*outer, weights.width),
        weights.codes, weights.scales, weights.zeros, weights.table, weights.scale, bias,
        None if residual is None else residual.reshape(*outer, n),
    ]  # fmt: skip
    result = None if out is None else out.reshape(*outer, n)
    return (*(a for a in given if a is not None), result), kernel, whole


def _is_short(weights: Weights) -> bool:
    """Whether packed rows fit in registers of a cluster, and blocks have one scale per row."""
    grouped = "KB" in weights.params[0].dims and weights.group[1] % PACKED_LINES
    row = DTYPES[weights.dtype].size(weights.width)
    return weights.is_packed and not grouped and row <= MOST_ROW_BYTES


def _form(x: str, weights: Weights, options: Mapping[str, Any]) -> Form:
    scales, zeros = weights.params
    grouped = "KB" in scales.dims
    _check_types(x, scales.dtype.name, by_group=grouped)
    activation = options["activation"]
    if activation is not None and activation not in ACTIVATIONS:
        raise wrong_option("activation", repr(activation), f"{', '.join(ACTIVATIONS)} or None")
    return Form(
        x=x,
        weights=weights.dtype,
        scales=scales,
        group=weights.group if grouped else (1, 1),
        packed=weights.is_packed,
        zeros=zeros,
        table=weights.table is not None,
        scale=weights.scale is not None,
        **options,
    )


def _check_types(x: str, scales: str, *, by_group: bool) -> None:
    if x not in ("bf16", "f16"):
        hint = "convert it, or use wsdsl.kernels.matmul for fp8 and integers with scale factors"
        raise LaunchError(f"WS0832 x is {x}, expected bf16 or f16", hint=hint)
    if x == "f16" and scales == "f8e8m0" and by_group:
        hint = "give x as bf16, or scales as f16"
        message = "WS0833 scales are f8e8m0 (2**-127 to 2**127), which exceeds the range of f16"
        raise LaunchError(message, hint=hint)
