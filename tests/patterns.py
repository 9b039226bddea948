"""Kernels without products as people write them, with what they give in NumPy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

BF16 = ml_dtypes.bfloat16


@dataclass(frozen=True)
class Pattern:
    """`inputs` of a generator; `wanted` of these in float64 what is stored, in the order of the
    outputs: arrays of zeros, which follow inputs. `sizes` are those that are proved.
    """

    text: str
    inputs: Callable[[Any], tuple[Any, ...]]
    wanted: Callable[..., tuple[Any, ...]]
    sizes: dict[str, int]
    exact: bool = False


def bf16(rng: Any, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(BF16)


def f32(rng: Any, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def ints(rng: Any, below: int, *shape: int) -> Any:
    return rng.integers(0, below, shape).astype(np.int32)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def rope(x: Any, c: Any, s: Any) -> Any:
    """Of halves along the third axis."""
    a, b = x[:, :, 0], x[:, :, 1]
    c, s = c[:, None], s[:, None]
    return np.stack([a * c - b * s, b * c + a * s], 2)


def added(shape: tuple[int, ...], at: Any, values: Any) -> Any:
    made = np.zeros(shape)
    np.add.at(made, at, values)
    return made


def group_norm(x: Any, w: Any, b: Any) -> Any:
    """x [batch * groups, channels * pixels], of 2 x 3 groups of 4 channels."""
    hat = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    hat = hat.reshape(2, 3, 4, -1)
    return (hat * w[None, :, :, None] + b[None, :, :, None]).reshape(x.shape)


def causal_softmax(x: Any) -> Any:
    x = np.where(np.tril(np.ones_like(x)) > 0, x, -np.inf)
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def causal_conv(x: Any, w: Any) -> Any:
    """Each column with its own three weights, the last one for the row itself."""
    before = np.concatenate([np.zeros((2, x.shape[1])), x])
    y = before[2:] * w[2] + before[1:-1] * w[1] + before[:-2] * w[0]
    return y * sigmoid(y)
