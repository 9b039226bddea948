"""What kernels over rows give, in float64, and how far they may be off."""

from typing import Any

import ml_dtypes
import numpy as np

TYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
ROUNDED = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
"""Of a result that is rounded once, relative."""
LEAST = {"f32": 2.0**-149, "f16": 2.0**-25, "bf16": 2.0**-134}
CASES = [
    *(((5, 131), dtype) for dtype in TYPES),
    ((70, 200), "bf16"),
    ((1, 1), "f16"),
    ((0, 8), "bf16"),
    ((3, 0), "f32"),
]


def drawn(*shape: int, seed: int = 0, dtype: str = "f32") -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(TYPES[dtype])


def at_limits(dtype: str, n: int) -> Any:
    """Two rows: a sum of squares just below 1e38, and a mean of squares just above 1e-37."""
    x = wide(drawn(2, n))
    sums = np.sqrt((x**2).sum(-1))
    return (x * (np.sqrt([0.98e38, 1.02e-37 * n]) / sums)[:, None]).astype(TYPES[dtype])


def wide(array: Any) -> Any:
    return np.asarray(array, np.float64)


def close(got: Any, wanted: Any, bound: Any, dtype: str = "f32") -> bool:
    """Within `bound`, and the result's rounding; NaN and infinities where they are expected."""
    number = np.isfinite(wanted)
    off = np.abs(np.where(number, wide(got), 0) - np.where(number, wanted, 0))
    allowed = np.abs(wanted) * ROUNDED[dtype] + bound * (1 + ROUNDED[dtype]) + LEAST[dtype]
    same = (wide(got) == wanted) | (np.isnan(wanted) & np.isnan(wide(got)))
    return got.shape == wanted.shape and bool(np.all(np.where(number, off <= allowed, same)))


def mean(values: Any) -> Any:
    return values.sum(-1, keepdims=True) / max(1, values.shape[-1])


def normalised(x: Any, eps: float, *, centred: bool) -> tuple[Any, Any, Any]:
    """x less its mean over its deviation, the mean, and one over the deviation."""
    centre = mean(wide(x)) * centred
    rstd = 1 / np.sqrt(mean((wide(x) - centre) ** 2) + eps)
    return (wide(x) - centre) * rstd, centre, rstd


def norm_gradient(g: Any, hat: Any, rstd: Any, *, centred: bool) -> Any:
    """Of x, where g is the gradient of `hat`."""
    return (g - centred * mean(g) - hat * mean(g * hat)) * rstd
