"""NumPy arithmetic on wsdsl dtypes: each operation rounds once, to its result's type.

bf16 and narrower floats are ml_dtypes'. Of 4 bits an element is held in a byte of its own: an
integer's value (int8 or uint8), already within range, or a float's code. `tf32` is a float32 whose
low 13 bits do not count.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from wsdsl.ir.integers import ON_INTEGERS
from wsdsl.ir.ops import BYTE_OF_WORDS, COMPARISONS, NOWHERE
from wsdsl.ir.types import DTYPES, Accumulator, DType, Fragment, Tensor, Tile, Value

Array = npt.NDArray[Any]

SPECIAL = {
    "bf16": ml_dtypes.bfloat16,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e8m0": ml_dtypes.float8_e8m0fnu,
    "f6e2m3": ml_dtypes.float6_e2m3fn,
    "f6e3m2": ml_dtypes.float6_e3m2fn,
    "f4e2m1": ml_dtypes.float4_e2m1fn,
    "bool": np.bool_,
}
NUMPY_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(SPECIAL.get(name, f"{dtype.kind}{max(8, dtype.bits)}"))
    for name, dtype in DTYPES.items()
}
F64 = DType("f64", "float", 64)
"""Not a type of the language: `tile_trials.py` computes in it, so that rounding hides nothing."""
NUMPY_DTYPES[F64.name] = np.dtype(np.float64)
# Of floats of 8 bits and fewer: the largest value, and the code of NaN, or of the largest value in
# types without NaN, as in PTX's cvt.satfinite.
SMALL_FLOATS = {
    "f8e4m3": (448.0, 0x7F), "f8e5m2": (57344.0, 0x7F), "f8e8m0": (2.0**127, 0xFF),
    "f6e2m3": (7.5, 0x1F), "f6e3m2": (28.0, 0x1F), "f4e2m1": (6.0, 0x7),
}  # fmt: skip
SMALL_MASK = {"f6e2m3": 0x3F, "f6e3m2": 0x3F, "f4e2m1": 0xF}
"""The bits of a byte that are the element's."""


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    return NUMPY_DTYPES[dtype.name]


def dtype_of(value: Value) -> DType:
    assert isinstance(value.type, Tile | Tensor | Fragment | Accumulator)
    return value.type.dtype


def widen(x: Array) -> Array:
    """A float array of any dtype as float32, exactly; one of `f64` stays as it is."""
    if x.dtype == np.float64:
        return x
    if x.dtype == NUMPY_DTYPES["bf16"]:
        # Shifting bits is several times faster than ml_dtypes' conversion.
        return (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return x.astype(np.float32, copy=False)


def multiplicand(x: Array, dtype: DType) -> Array:
    """A tile as the tensor cores multiply it; of tf32 they ignore the lower 13 bits."""
    if dtype.is_integer:
        return x.astype(np.int32)
    if dtype.name == "tf32":
        bits = np.asarray(x, order="C").view(np.uint32)
        return (bits & np.uint32(0xFFFFE000)).view(np.float32)
    return widen(x)


def round_float(x: Array, target: DType) -> Array:
    """Round float32 or float64 values to a float dtype; those of 8 bits and fewer saturate, as
    PTX's cvt does, and have one NaN or none. f8e8m0 has no 0, which becomes 2**-127, and no sign:
    negative values become NaN. Of two equally near powers of two, it is the larger one.
    """
    if target.name == "tf32":
        # Not ascontiguousarray, which gives a scalar an axis.
        bits = np.asarray(x, np.float32, order="C").view(np.uint32)
        rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
        return np.where(np.isfinite(x), rounded, x).astype(np.float32)
    if target.name in SMALL_FLOATS:
        most, of_nan = SMALL_FLOATS[target.name]
        least, is_nan = -most, np.isnan(x)
        if target.name == "f8e8m0":
            # By hand: ml_dtypes is off by one where f32 has no leading one, below 2**-126.
            part, power = np.frexp(np.clip(np.where(is_nan, 1, x), 2.0**-127, most))
            codes = np.where(is_nan | (x < 0), of_nan, power + 126 + (part >= 0.75))
            return codes.astype(np.uint8).view(numpy_dtype(target))
        finite = np.clip(x, least, most).astype(np.float32).astype(numpy_dtype(target))
        return np.where(is_nan, np.uint8(of_nan), finite.view(np.uint8)).view(finite.dtype)
    if target.name == "bf16":
        x = x.astype(np.float32, copy=False)
    with np.errstate(over="ignore"):
        return x.astype(numpy_dtype(target))


def wrap_integer(x: Array, target: DType) -> Array:
    """The low bits of int64 values, read as an integer dtype."""
    if target.bits == 4:
        low = x & 15
        signed = np.where(low > 7, low - 16, low) if target.kind == "int" else low
        return signed.astype(numpy_dtype(target))
    return x.astype(numpy_dtype(target))


def convert(x: Array, source: DType, target: DType, saturate: bool = False) -> Array:
    """`cast`: float to integer truncates and saturates, integer to integer keeps the low bits
    unless it shall `saturate`.
    """
    if source == target:
        return x
    if target.kind == "bool":
        return np.asarray(x != 0)
    if target.is_float:
        return round_float(widen(x) if source.is_float else x.astype(np.float64), target)
    low, high = target.limits
    if not source.is_float:
        whole = x.astype(np.int64)
        return wrap_integer(np.clip(whole, low, high) if saturate else whole, target)
    whole = np.nan_to_num(np.trunc(widen(x).astype(np.float64)), nan=0.0, posinf=high, neginf=low)
    return np.clip(whole, low, high).astype(np.int64).astype(numpy_dtype(target))


def contracted(a: Array, b: Array, axes: tuple[list[int], list[int]]) -> Array:
    """`np.tensordot`, also of infinities: BLAS leaves out what it multiplies by 0, and so NaN."""
    if a.dtype.kind != "f" or (np.isfinite(a).all() and np.isfinite(b).all()):
        return np.tensordot(a, b, axes)
    left, right = [*range(a.ndim)], [*range(a.ndim, a.ndim + b.ndim)]
    for i, j in zip(*axes, strict=True):
        right[j] = left[i]
    free = [*(x for x in left if x not in right), *(x for x in right if x not in left)]
    return np.einsum(a, left, b, right, free)


def round_total(x: Array, target: DType) -> Array:
    """Round a float64 to a dtype, or wrap an int64."""
    return round_float(x, target) if target.is_float else wrap_integer(x, target)


def added(a: Array, b: Array, dtype: DType) -> Array:
    """Add two arrays of a dtype."""
    wide = np.float64 if dtype.is_float else np.int64
    return round_total(a.astype(wide) + b.astype(wide), dtype)


def reinterpret(x: Array, source: DType, target: DType) -> Array:
    """`bitcast` between dtypes of one width. NumPy gives NaN any sign, the GPU one: all bits but
    the sign are set.
    """
    if target.bits == 4 and target.is_integer:
        codes = x.view(np.uint8) if source.is_float else x
        return wrap_integer(codes.astype(np.int64), target)
    if target.name in SMALL_MASK:
        x = x.view(np.uint8) & np.uint8(SMALL_MASK[target.name])
    value = x.view(numpy_dtype(target))
    if source.is_float and target.is_integer and source.name not in (*SMALL_MASK, "f8e8m0"):
        nan = np.isnan(x)
        if nan.any():
            bits = (1 << (source.bits - 1)) - 1
            value = np.where(nan, np.asarray(bits, value.dtype), value)
    return value


def larger(a: Any, b: Any) -> Array:
    """The maximum as the GPU computes it: NaN if either is, and of zeros the positive one."""
    result = np.maximum(a, b)
    zero = result == 0
    return np.where(zero & (a == b), a + b, result) if zero.any() else result


def smaller(a: Any, b: Any) -> Array:
    return -larger(np.negative(a), np.negative(b))


_erf: Callable[..., Any] = np.frompyfunc(math.erf, 1, 1)


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


OF_ANY = ON_INTEGERS | {"neg": np.negative, "abs": np.abs}
EXACT: dict[str, Callable[..., Any]] = {
    **OF_ANY,
    "div": np.divide,
    "min": smaller,
    "max": larger,
    "floor": np.floor,
    "round": np.rint,
    "sqrt": np.sqrt,
    "relu": lambda x: larger(x, np.float32(0)),
    "floordiv": lambda a, b: np.floor(np.divide(a, b)),
}
"""Functions that float32 computes as well as float64 rounded (or exactly)."""

IN_DOUBLE: dict[str, Callable[..., Any]] = {
    **{fn: getattr(np, fn) for fn in ("exp", "exp2", "log", "log2", "sin", "cos", "tanh")},
    "pow": np.power,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sigmoid": _sigmoid,
    "gelu": lambda x: 0.5 * x * (1.0 + np.asarray(_erf(x / math.sqrt(2.0)), np.float64)),
    "silu": lambda x: x * _sigmoid(x),
    "erf": lambda x: np.asarray(_erf(x), np.float64),
    "fma": lambda a, b, c: a * b + c,
}


def _guarded_shift(shift: Callable[..., Any]) -> Callable[..., Any]:
    # NumPy leaves a shift by 64 and more undefined; by 63 all of a 32-bit value is out already, and
    # by a negative number, which on the GPU exceeds any number of bits.
    return lambda a, b: shift(a, np.where(b < 0, 63, np.minimum(b, 63)))


INTEGER: dict[str, Callable[..., Any]] = {
    **OF_ANY,
    "div": lambda a, b: np.trunc(np.divide(a, b)).astype(np.int64),
    "floordiv": np.floor_divide,
    "pow": lambda a, b: np.power(a, np.maximum(b, 0)),
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": _guarded_shift(np.left_shift),
    "shr": _guarded_shift(np.right_shift),
    # Of two u32 the product has 64 bits, and its own sign: the lower bits of the shift are right.
    "mulhi": lambda a, b: np.multiply(a, b) >> 32,
    "popcount": lambda x: sum((x >> i & 1 for i in range(32)), np.zeros_like(x)),
    "not": np.invert,
    "relu": lambda x: np.maximum(x, 0),
    "floor": lambda x: x,
    "fma": lambda a, b, c: a * b + c,
}


def apply(fn: str, arguments: Sequence[Array], dtype: DType, target: DType) -> Array:
    """`map`: `fn` on arguments of one dtype (the last one's), rounded to `target`."""
    if fn == "where":
        return np.where(arguments[0], arguments[1], arguments[2])
    if fn in BYTE_OF_WORDS:
        words = [x.astype(np.int64) for x in arguments[1:]]
        at = arguments[0].astype(np.int64) % (4 * len(words))
        word = np.select([at // 4 == i for i in range(len(words))], words)
        return (word >> 8 * (at % 4) & 0xFF).astype(numpy_dtype(target))
    if fn == "join":
        high, low = (x.astype(np.uint16) for x in arguments)
        return np.asarray(high << 8 | low).view(numpy_dtype(target))
    with np.errstate(all="ignore"):
        if dtype.kind == "bool":
            return np.asarray(INTEGER[fn](*arguments))
        if dtype.is_float:
            wide = [widen(a) for a in arguments]
            if fn in COMPARISONS:
                return np.asarray(OF_ANY[fn](*wide))
            if fn in EXACT:
                return round_float(np.asarray(EXACT[fn](*wide)), target)
            doubled = [w.astype(np.float64) for w in wide]
            return round_float(np.asarray(IN_DOUBLE[fn](*doubled)), target)
        whole = [a.astype(np.int64) for a in arguments]
        if fn in COMPARISONS:
            return np.asarray(OF_ANY[fn](*whole))
        return wrap_integer(np.asarray(INTEGER[fn](*whole)), target)


def reduce(fn: str, x: Array, dtype: DType, axis: int) -> Array:
    """Reduce one axis; sums of floats in f32 and up, rounded once to the same dtype."""
    if fn == "add":
        if dtype.is_float:
            return round_float(widen(x).sum(axis=axis, dtype=np.float64), dtype)
        return wrap_integer(x.sum(axis=axis, dtype=np.int64), dtype)
    if dtype.is_float:
        wide = widen(x) if fn == "max" else -widen(x)
        most = np.asarray(np.maximum.reduce(wide, axis=axis, initial=-np.inf))
        if (most == 0).any():
            positive = ((wide == 0) & ~np.signbit(wide)).any(axis=axis)
            most = np.where(most == 0, np.where(positive, 0.0, -0.0), most).astype(wide.dtype)
        return round_float(most if fn == "max" else -most, dtype)
    low, high = dtype.limits
    start, pick = (low, np.maximum) if fn == "max" else (high, np.minimum)
    return np.asarray(pick.reduce(x.astype(np.int64), axis=axis, initial=start)).astype(
        numpy_dtype(dtype)
    )


def reduce_blocks(fn: str, x: Array, dtype: DType, axis: int, size: int, start: int = 0) -> Array:
    """Reduce each block of `size` elements along an axis whose first one has the index `start`;
    all elements of a block get what it gives.
    """
    blocks = (np.arange(x.shape[axis]) + start) // size
    result = np.empty_like(x)
    for block in dict.fromkeys(blocks.tolist()):
        own = tuple(slice(None) if i != axis else blocks == block for i in range(x.ndim))
        result[own] = np.expand_dims(reduce(fn, x[own], dtype, axis), axis)
    return result


def scan(x: Array, dtype: DType, axis: int) -> Array:
    """Sums up to each element along an axis; of floats each rounded once."""
    wide = np.float64 if dtype.is_float else np.int64
    with np.errstate(invalid="ignore"):
        return round_total(x.astype(wide).cumsum(axis=axis), dtype)


def top_k(x: Array, places: Array, dtype: DType, count: int) -> tuple[Array, Array]:
    """The largest along the last axis in descending order, and their places; NaN, then the least
    place first. Missing elements have the lowest value, and the place `NOWHERE`.
    """
    missing = [(0, 0)] * (x.ndim - 1) + [(0, max(0, count - x.shape[-1]))]
    low = dtype.limits[0]
    x = np.pad(x, missing, constant_values=np.asarray(low).astype(x.dtype))
    places = np.pad(places, missing, constant_values=NOWHERE)
    wide = widen(x) if dtype.is_float else x.astype(np.int64)
    keys = places, np.where(np.isnan(wide), 0, -wide), ~np.isnan(wide)
    order = np.lexsort(keys, axis=-1)[..., :count]
    return np.take_along_axis(x, order, -1), np.take_along_axis(places, order, -1)
