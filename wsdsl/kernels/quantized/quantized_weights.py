"""Quantized weights: codes, scales and zero points, checked, as a matmul reads them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from wsdsl.diagnostics import LaunchError
from wsdsl.dispatch.kernel import Kernel
from wsdsl.dynamo import opaque
from wsdsl.ir.types import DTYPES
from wsdsl.kernels.checks import AS_BITS
from wsdsl.kernels.gemm.matmul_dtypes import dtype_of, wrong_option, wrong_shape
from wsdsl.kernels.gemm.matmul_source import Param
from wsdsl.kernels.host_arrays import (
    OF_HOST,
    on_host,
    packed_like,
    placed_like,
    shape_of,
    type_name,
)
from wsdsl.kernels.quantized.codes import BIASED, as_codes, numbers, type_of
from wsdsl.kernels.torch_ops import Stored
from wsdsl.lazy import cached_property
from wsdsl.runtime.arrays.interop import describe
from wsdsl.runtime.arrays.packed import Packed, contiguous
from wsdsl.runtime.arrays.packed import pack as in_order
from wsdsl.runtime.arrays.views import adapt
from wsdsl.runtime.native.repeated_calls import Repeater

SCALES = ("f32", "f16", "bf16", "f8e4m3", "f8e5m2", "f8e8m0")
FORMATS = {"nvfp4": ("f4e2m1", 16, "f8e4m3"), "mxfp4": ("f4e2m1", 32, "f8e8m0")}
"""Of other names: the type of codes, the group, the type of scales."""
Group = int | tuple[int, int] | None


@dataclass(frozen=True, eq=False)
class Weights(Stored):
    """A matrix [N, K] with the values (codes - zeros) * scales * scale. Arrays are of one
    framework, on one device.

    `codes`: of `dtype`, a type of the language by name; packed (Kernel.pack), or an array.
    `scales` and `zeros`: one number, [N], or [N / group[0], K / group[1]], rounded up.
    `scale`: f32 [1], or None.
    `scale_dtype`: of `scales`, as `dtype`; arrays of CuPy do not tell it.
    `order`: [K], the column of the matrix that each column of codes is, or None where they are in
        order. Columns that share a scale are adjacent in `codes`; `matmul` gathers x.
    `table`: f32 [16], the values of codes of u4, or None where those are 0 to 15.
    """

    shape: tuple[int, int]
    dtype: str
    group: tuple[int, int]
    codes: Any = field(repr=False)
    scales: Any = field(repr=False)
    zeros: Any = field(default=None, repr=False)
    scale: Any = field(default=None, repr=False)
    scale_dtype: str = "f32"
    order: Any = field(default=None, repr=False)
    table: Any = field(default=None, repr=False)
    kernels: dict[Any, Kernel] = field(default_factory=dict[Any, "Kernel"], init=False, repr=False)
    """The kernels of matmuls that use these weights, by the call's other options."""

    @cached_property
    def width(self) -> int:
        """K, or of 4 bits one more where that is odd."""
        codes = self.codes
        return codes.shape[1] if self.is_packed else DTYPES[self.dtype].count(codes.shape[1])

    @property
    def nbytes(self) -> int:
        return sum(int(np.prod(x.shape)) * x.dtype.itemsize for x in self.arrays[1].values())

    @property
    def is_packed(self) -> bool:
        return isinstance(self.codes, Packed)

    @cached_property
    def arrays(self) -> tuple[Repeater, dict[str, Any]]:
        """The known calls with these weights, and their arrays by name."""
        codes = self.codes.data if self.is_packed else self.codes
        arrays = {"codes": codes, "scales": self.scales, "zeros": self.zeros, "scale": self.scale}
        arrays |= {"order": self.order, "table": self.table}
        return Repeater(), {name: x for name, x in arrays.items() if x is not None}

    @property
    def dims(self) -> tuple[str, ...]:
        """Of scales and zero points, by name."""
        shape = tuple(self.scales.shape)
        if shape == (1,):
            return ("1",)
        return ("N",) if len(shape) == 1 else ("N" if self.group[0] == 1 else "NB", "KB")

    @cached_property
    def params(self) -> tuple[Param, Param | None]:
        """Scales and zero points as the kernel takes them."""
        zeros = Param("zero_points", DTYPES[zeros_of(self.dtype)], self.dims)
        scales = Param("scales", DTYPES[self.scale_dtype], self.dims)
        return scales, None if self.zeros is None else zeros

    def __str__(self) -> str:
        n, k = self.shape
        kinds = {"1": "one scale", "N": "one scale per column", "KB": "scales of {} x {}"}
        said = kinds[self.dims[-1]].format(*self.group)
        zeros = "" if self.zeros is None else ", zero points"
        bits = 8 * self.nbytes / (n * k)
        return f"{self.dtype} [{n}, {k}], {said}{zeros}: {bits:.2f} bits per weight"

    def pack(self) -> Weights:
        """With codes in the order in which threads hold them."""
        if self.is_packed:
            return self
        return replace(self, codes=in_order(self.codes, DTYPES[self.dtype]))

    def plain(self) -> Weights:
        """With codes as an array."""
        return replace(self, codes=self.codes.unpack()) if self.is_packed else self

    def to(self, like: Any) -> Weights:
        """On the device of an array, and of its framework."""
        given = {name: getattr(self, name) for name in ("zeros", "scale", "order", "table")}
        moved = {name: placed_like(on_host(x), like) for name, x in given.items() if x is not None}
        moved["scales"] = placed_like(self._host_scales(), like)
        packed, codes = self.is_packed, self.codes
        codes = packed_like(codes, like) if packed else placed_like(on_host(codes), like)
        return replace(self, codes=codes, **moved)

    def dequantize(self, dtype: Any = "f32") -> Any:
        """[N, K] of f64 (not by JAX), f32, f16 or bf16: codes minus zero points are exact, what is
        multiplied by scales is rounded once. On the CPU, and placed where the weights are.
        """
        name = str(dtype).removeprefix("torch.")
        wanted = name if name in ("f64", "float64") else dtype_of(dtype, "dtype").name
        made = self._values()
        if wanted not in ("f64", "float64"):
            made = made.astype(np.float32).astype(OF_HOST[wanted])
        return placed_like(made, self.scales)

    def _values(self) -> Any:
        """Of f64, which holds any such product."""
        codes = self.codes
        if isinstance(codes, Packed):  # of bytes: `to` loses the elements' type
            codes = replace(codes, like=None).unpack()
        values = numbers(on_host(codes), self.dtype).astype(np.float64)[:, : self.shape[1]]
        if self.table is not None:
            values = on_host(self.table).astype(np.float64)[values.astype(np.uint8)]
        if self.zeros is not None:
            values -= self._spread(self.zeros)
        values *= self._spread(self.scales)
        if self.order is not None:
            values = values[:, np.argsort(on_host(self.order))]
        return values if self.scale is None else values * float(on_host(self.scale)[0])

    def _host_scales(self) -> Any:
        return on_host(self.scales).view(OF_HOST[self.scale_dtype])

    def _spread(self, array: Any) -> Any:
        held = self._host_scales() if array is self.scales else on_host(array)
        held = held.astype(np.float64)
        if held.ndim < 2:
            return held[:, None] if held.size > 1 else held
        rows, columns = self.group
        return np.repeat(np.repeat(held, rows, 0), columns, 1)[: self.shape[0], : self.shape[1]]


@opaque
def weights(
    codes: Any,
    scales: Any,
    zeros: Any = None,
    *,
    dtype: Any = None,
    group: Group = None,
    scale: Any = None,
    scale_dtype: Any = None,
    pack: bool = True,
) -> Weights:
    """Wrap quantized weights [N, K]: (codes - zeros) * scales * scale.

    codes: [N, K] of 8 bits; of 4 bits [N, K / 2] of uint8, two to a byte, the first one in the
        lower half; of either also words of int32, [N, K / 8] or [N, K / 4], the first one lowest;
        or what `Kernel.pack` made of them.
    scales: one number; [N] or [N, 1], one for each column of the result; [N, ceil(K / group)]; or
        for `group=(rows, columns)` [ceil(N / rows), ceil(K / columns)]. Of f32, f16, bf16, f8e4m3,
        f8e5m2 or f8e8m0.
    zeros: of the scales' shape, one number a byte, for integer codes.
    dtype: "i4", "u4", "f4e2m1", "i8", "u8", "f8e4m3" or "f8e5m2"; "u4b8" and "u8b128" are unsigned
        ones less 8 and 128. Needed where the array does not tell it. Or "nvfp4", "mxfp4", which
        say group and scale_dtype, too.
    group: weights along K that share a scale; left out where scales tell it.
    scale: one number for all weights, as nvfp4 has it.
    scale_dtype: "f8e4m3", "f8e5m2" or "f8e8m0", where scales are bytes (uint8). Those of f4e2m1 are
        f8e8m0 in groups of 32, f8e4m3 in groups of 16, if this is left out.
    pack: whether codes are packed, which is the fastest layout for matmuls of few rows.

    LaunchError for what does not fit.
    """
    dtype, group, scale_dtype = format_of(dtype, group, scale_dtype)
    name = type_of(codes, dtype)
    held, (n, k) = as_codes(codes, name)
    kind, _ = BIASED.get(name, (name, 0))
    if isinstance(scales, int | float):
        scales = _one_number(scales, held.data if isinstance(held, Packed) else held)
    kept, sizes = _arranged("scales", scales, (n, k), group)
    of_scales = _type_of_scales(kept, kind, checked_group(group) or sizes, scale_dtype)
    if adapt(describe(kept), DTYPES[of_scales]).dtype.name != of_scales:
        kept = placed_like(on_host(kept).view(OF_HOST[of_scales]), kept)
    points = None
    if zeros is not None:
        if DTYPES[kind].is_float:
            hint = "leave zeros out, or use codes of i4, u4, i8 or u8"
            raise LaunchError(f"WS0838 zeros are given, but codes are {kind}", hint=hint)
        points = _points(zeros, kind, kept, (n, k), sizes)
    whole = None if scale is None else _one_number(scale, kept)
    made = Weights((n, k), kind, sizes, held, kept, points, whole, of_scales)
    return made.pack() if pack else made


def format_of(dtype: Any, group: Group, scale_dtype: Any) -> tuple[Any, Group, Any]:
    """Resolve a name of FORMATS to type, group and scale_dtype; else return all three as given."""
    if not isinstance(dtype, str) or dtype not in FORMATS:
        return dtype, group, scale_dtype
    kind, columns, scales = FORMATS[dtype]
    if group not in (None, columns) or scale_dtype not in (None, scales):
        message = f"WS0839 {dtype} has groups of {columns} with scales of {scales}"
        raise LaunchError(message, hint=f'leave group and scale_dtype out, or give dtype="{kind}"')
    return kind, columns, scales


def checked_scale_type(given: Any) -> str:
    found = dtype_of(given, "scale_dtype").name
    if found not in SCALES:
        raise wrong_option("scale_dtype", found, ", ".join(SCALES))
    return found


def _type_of_scales(array: Any, kind: str, group: tuple[int, int], given: Any) -> str:
    """The array's type, as the language names it; for uint8, `given`, or else the usual one."""
    wanted = None if given is None else checked_scale_type(given)
    own = AS_BITS.get(name := describe(array).dtype.name, name)
    if own == "u8":
        usual = (scales for *form, scales in FORMATS.values() if form == [kind, group[1]])
        own = wanted or (next(usual, own) if group[0] == 1 else own)
        if DTYPES[own].is_integer or DTYPES[own].bits != 8:
            hint = 'give scale_dtype="f8e4m3", "f8e5m2" or "f8e8m0"'
            raise LaunchError("WS0840 scales are uint8: their type is ambiguous", hint=hint)
    if own not in SCALES:
        message = f"WS0841 scales are {type_name(array)}, expected {', '.join(SCALES)}"
        bits = "give the bits of scales as uint8, by `.view`, with scale_dtype"
        raise LaunchError(message, hint=bits if own[0] in "iub" else "convert them to f32")
    if wanted not in (None, own):
        hint = f"leave scale_dtype out, and give dtype={kind!r}"
        raise LaunchError(f"WS0842 scales are {own}, but scale_dtype is {wanted}", hint=hint)
    return own


def checked_group(group: Any) -> tuple[int, int] | None:
    """Rows and columns that share a scale; None where that is not said."""
    if group is None:
        return None
    found = group if isinstance(group, tuple) else (1, group)
    if len(found) != 2 or not all(
        isinstance(size, int | np.integer) and size >= 1 for size in found
    ):
        hint = "give the weights along K that share a scale, as 128, or (rows, columns) of a block"
        raise LaunchError(f"WS0843 group is {group!r}, expected positive integers", hint=hint)
    return found


def zeros_of(dtype: str) -> str:
    """The type of zero points for codes of that type."""
    return "u8" if dtype[0] == "u" else "i8"


def _arranged(
    name: str, array: Any, shape: tuple[int, int], group: Group
) -> tuple[Any, tuple[int, int]]:
    """The array by [1], [N] or [N / rows, K / columns], and those sizes."""
    (n, k), held = shape, shape_of(name, array)
    rows, columns = checked_group(group) or (1, None)
    if int(np.prod(held)) == 1:
        return array.reshape(1), shape
    if held in ((n,), (n, 1)) and (columns is None or columns >= k) and rows == 1:
        return array.reshape(n), (1, k)
    if columns is None and len(held) == 2 and held[0] == n and k % held[1] == 0:
        columns = k // held[1]
    wanted = (-(-n // rows), -(-k // (columns or k)))
    if held != wanted or columns is None:
        fits = f"{name} of shape {wanted}" if columns else "[N], or [N, K / group] and group="
        turned = columns is not None and held == wanted[::-1]
        hint = f"give {name}.T" if turned else f"give {fits}, or one number"
        message = f"WS0844 {name} have shape {held}, for weights of shape {shape} and group={group}"
        raise LaunchError(message, hint=hint)
    return contiguous(array), (rows, columns)


def _points(
    zeros: Any, kind: str, scales: Any, shape: tuple[int, int], sizes: tuple[int, int]
) -> Any:
    """One a byte, of the shape of the scales."""
    found, _ = _arranged("zeros", zeros, shape, sizes)
    if tuple(found.shape) != tuple(scales.shape):
        raise wrong_shape("zeros", tuple(zeros.shape), f"{tuple(scales.shape)}, as scales")
    held, wanted = on_host(found), OF_HOST[zeros_of(kind)]
    if held.dtype.kind not in "iu":
        hint = "round them: fractional zero points are not supported"
        raise LaunchError(f"WS0845 zeros are {type_name(zeros)}, expected integers", hint=hint)
    if not np.array_equal(held.astype(wanted), held):
        message = f"WS0846 zeros range from {held.min()} to {held.max()}, beyond {wanted.name}"
        raise LaunchError(message, hint=f"give zero points of {kind} codes in {wanted.name}")
    return found if held.dtype == wanted else placed_like(held.astype(wanted), found)


def _one_number(scale: Any, like: Any) -> Any:
    try:
        held = np.asarray(on_host(scale) if hasattr(scale, "dtype") else scale, np.float32)
    except (TypeError, ValueError):
        raise wrong_option("scale", repr(scale), "one number") from None
    if held.size != 1:
        raise wrong_shape("scale", held.shape, "one number")
    return placed_like(held.reshape(1), like)
