"""`quantize`: weights rounded to codes of 4 or 8 bits, with scales and zero points."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from wsdsl.diagnostics import LaunchError
from wsdsl.dynamo import opaque
from wsdsl.ir.types import DTYPES
from wsdsl.kernels.gemm.matmul_dtypes import wrong_dtype
from wsdsl.kernels.host_arrays import OF_HOST, matrix_shape, on_host, placed_like, type_name
from wsdsl.kernels.quantized.codes import BIASED, WEIGHTS, in_pairs, type_of
from wsdsl.kernels.quantized.quantized_weights import (
    Group,
    Weights,
    checked_group,
    checked_scale_type,
    format_of,
    weights,
    zeros_of,
)

HELD = ("float64", "float32", "float16", "bfloat16")
OF_TYPE = {"f4e2m1": 6.0, "f8e4m3": 448.0, "f8e5m2": 57344.0, "i4": 7.0, "i8": 127.0}
"""The largest magnitude that codes represent with either sign."""
LIMITS = {"i4": (-8, 7), "u4": (0, 15), "i8": (-128, 127), "u8": (0, 255)}
MANY = 1 << 24
"""Weights that are rounded at a time."""


@opaque
def quantize(
    values: Any,
    dtype: Any = "i4",
    group: Group = None,
    *,
    zeros: bool | None = None,
    scale_dtype: Any = None,
    per_tensor: bool = False,
    pack: bool = True,
) -> Weights:
    """Weights [N, K], rounded to the nearest code.

    values: f32, f16, bf16 or f64 of torch, JAX, CuPy or NumPy. The CPU quantizes them; the result
        is on their device.
    dtype: as for `weights`; or "nvfp4", "mxfp4", which say the rest, too.
    group: weights along K that share a scale, or (rows, columns) of a block; of an output column
        all, if it is left out.
    zeros: whether codes have zero points; u4 and u8 have, unless this is False.
    scale_dtype: bf16 for groups (f16 of weights of f16), f32 for others. With f8e4m3 there is also
        one f32 for all weights.
    per_tensor: one scale for all weights.
    pack: as for `weights`.
    """
    kind, group, scale_dtype = _format(dtype, group, scale_dtype)
    if type_name(values) not in HELD:
        raise wrong_dtype("dtype of weights", type_name(values), ("f32", "f16", "bf16", "f64"))
    _, width = matrix_shape("weights", values)
    held = on_host(values).astype(np.float32)
    if held.shape[1] % 2 and DTYPES[kind].bits == 4:  # two to a byte
        held = np.pad(held, ((0, 0), (0, 1)))
    if not np.isfinite(held).all():
        hint = "replace them: no scale fits infinities and NaN"
        raise LaunchError("WS0834 weights have elements that are not finite", hint=hint)
    signed = kind in OF_TYPE
    with_zeros = not signed if zeros is None else zeros
    if signed and with_zeros:
        unsigned = "u" + kind[1:] if DTYPES[kind].is_integer else "u4 or u8"
        hint = f"quantize to {unsigned}"
        raise LaunchError(f"WS0835 zeros=True, but {kind} has no zero points", hint=hint)
    k = held.shape[1]
    rows, columns = _group(group, (len(held), k), per_tensor=per_tensor)
    name = _scale_type(scale_dtype, type_name(values), grouped=columns < k)
    low, high = _extremes(held, (rows, columns))
    whole = None
    if with_zeros:
        most = 2.0 ** DTYPES[kind].bits - 1
        scales = (high - low) / most
    else:
        most = OF_TYPE.get(kind, 2.0 ** DTYPES[kind].bits - 1)
        scales = np.maximum(high, -low if signed else 0) / most
        if name == "f8e4m3":
            whole = np.float32(max(float(scales.max()) / OF_TYPE["f8e4m3"], 2.0**-100))
            scales = scales / whole
    scales = _rounded(scales, name, most)
    real = scales.astype(np.float32) * (np.float32(1) if whole is None else whole)
    points = np.clip(np.rint(-low / real), 0, most) if with_zeros else None
    codes = _codes(held, real, points, (rows, columns), kind)

    def placed(array: Any) -> Any:
        return placed_like(array, values)

    group = (rows, columns)
    if per_tensor or (columns >= k and rows == 1):
        group, scales = None, scales.reshape(-1)
        points = None if points is None else points.reshape(-1)
    points = None if points is None else placed(points.astype(OF_HOST[zeros_of(kind)]))
    how = dict[str, Any](group=group, scale=whole, scale_dtype=name, pack=pack)
    made = weights(placed(codes), placed(scales), points, dtype=kind, **how)
    return replace(made, shape=(len(held), width))


def _format(dtype: Any, group: Group, scale_dtype: Any) -> tuple[str, Group, Any]:
    dtype, group, scale_dtype = format_of(dtype, group, scale_dtype)
    kind = type_of(None, dtype)
    if kind not in WEIGHTS:
        hint = f'quantize to "{BIASED[kind][0]}", which is equal'
        raise LaunchError(f"WS0836 {kind} is a type of given codes only", hint=hint)
    return kind, group, scale_dtype


def _group(group: Group, shape: tuple[int, int], *, per_tensor: bool) -> tuple[int, int]:
    """Rows and columns that share a scale."""
    if per_tensor and group is not None:
        raise LaunchError(f"WS0837 both per_tensor=True and group={group}", hint="give one of them")
    return shape if per_tensor else checked_group(group) or (1, shape[1])


def _scale_type(given: Any, values: str, *, grouped: bool) -> str:
    if given is None:
        return ("f16" if values == "float16" else "bf16") if grouped else "f32"
    return checked_scale_type(given)


def _extremes(values: Any, group: tuple[int, int]) -> tuple[Any, Any]:
    """The least and the largest of each group and 0."""
    over = [(0, -n % size) for n, size in zip(values.shape, group)]
    cut = np.pad(values, over) if any(more for _, more in over) else values
    cut = cut.reshape(cut.shape[0] // group[0], group[0], -1, group[1])
    return cut.min((1, 3), initial=0), cut.max((1, 3), initial=0)


def _rounded(scales: Any, name: str, most: float) -> Any:
    """Round scales to the type `name`; none becomes 0. Powers of two follow the largest weight, as
    in OCP's MX: weights beyond the codes' range saturate at the largest code.
    """
    kind = OF_HOST[name]
    if name == "f8e8m0":
        with np.errstate(divide="ignore"):
            powers = np.floor(np.log2(scales * most)) - np.floor(np.log2(most))
        return np.exp2(np.clip(powers, -127, 127)).astype(kind)
    limits = ml_dtypes.finfo(kind)
    least, largest = float(limits.smallest_subnormal), float(limits.max)
    made = np.minimum(scales, largest).astype(kind)
    return np.where(made.astype(np.float32) == 0, np.array(least, kind), made)


def _codes(values: Any, scales: Any, points: Any, group: tuple[int, int], kind: str) -> Any:
    """As `weights` takes them, some rows at a time."""
    (n, k), (rows, columns) = values.shape, group
    found: list[Any] = []
    step = rows * max(1, MANY // (rows * k))
    for first in range(0, n, step):
        cut = values[first : first + step]
        own = slice(first // rows, -(-(first + step) // rows))

        def spread(array: Any, own: slice = own, cut: Any = cut) -> Any:
            return array[own].repeat(rows, 0).repeat(columns, 1)[: len(cut), :k]

        ratio = cut / spread(scales)
        if DTYPES[kind].is_integer:
            offset = 0 if points is None else spread(points)
            low, high = LIMITS[kind]
            codes = np.clip(np.rint(ratio) + offset, low, high).astype(np.int16).astype(np.uint8)
        else:
            most = OF_TYPE[kind]
            of = ml_dtypes.float4_e2m1fn if kind == "f4e2m1" else OF_HOST[kind]
            codes = np.clip(ratio, -most, most).astype(of).view(np.uint8)
        found.append(in_pairs(codes & 15) if DTYPES[kind].bits == 4 else codes)
    made = np.concatenate(found)
    return made if DTYPES[kind].bits == 4 else made.view(OF_HOST[kind])
