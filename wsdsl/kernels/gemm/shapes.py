"""Shapes of the operands: vectors and transposes as matrices, and batches as they broadcast."""

from __future__ import annotations

from collections.abc import Sequence

from wsdsl.diagnostics import Finding, LaunchError
from wsdsl.ir.types import DType
from wsdsl.runtime.views import ArrayView, contiguous_strides


def as_matrix(name: str, view: ArrayView, transposed: bool, axes: tuple[str, str]) -> ArrayView:
    """The operand with its axes in the order of the product; a vector gets the one it lacks."""
    shape, strides = view.shape, view.strides
    if not shape:
        raise LaunchError(Finding(f"{name} is a scalar, expected a matrix", hint="multiply by `*`"))
    if len(shape) == 1:
        if transposed:
            message = f"transpose_{name} is given, and {name} is a vector of shape {shape}"
            raise LaunchError(Finding(message, hint="leave it out"))
        position = axes.index("K")
        shape = (shape[0], 1) if position == 0 else (1, shape[0])
        strides = (strides[0], 0) if position == 0 else (0, strides[0])
    elif transposed:
        shape = (*shape[:-2], shape[-1], shape[-2])
        strides = (*strides[:-2], strides[-1], strides[-2])
    return viewed(view, shape, strides)


def batch_of(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """The batch dimensions of the result, as NumPy broadcasts them."""
    rank = max(len(a), len(b)) - 2
    left = (1,) * (rank + 2 - len(a)) + tuple(a[:-2])
    right = (1,) * (rank + 2 - len(b)) + tuple(b[:-2])
    if any(m != n and 1 not in (m, n) for m, n in zip(left, right)):
        message = f"a has batch dimensions {tuple(a[:-2])}, b has {tuple(b[:-2])}"
        raise LaunchError(Finding(message, hint="they must be the same, or 1"))
    return tuple(n if m == 1 else m for m, n in zip(left, right))


def inner_sizes(both: Sequence[ArrayView], transposed: Sequence[bool], a: int, b: int) -> Finding:
    """Why the operands do not go together."""
    told = [
        f"{x} has shape {view.shape}" + (f" (transpose_{x}=True)" if flag else "")
        for x, view, flag in zip("ab", both, transposed)
    ]
    hint = "a is [..., M, K] and b is [..., K, N]"
    if not transposed[1] and len(both[1].shape) > 1 and both[1].shape[-1] == a:
        hint += "; give b.T, or transpose_b=True, for a b that is [..., N, K]"
    return Finding(f"{' and '.join(told)}: K is {a} of a and {b} of b", hint=hint)


def viewed(view: ArrayView, shape: tuple[int, ...], strides: tuple[int, ...]) -> ArrayView:
    """The geometry alone, for what is decided by it."""
    return ArrayView(view.pointer, view.dtype, shape, strides, view.device)


def contiguous(like: ArrayView, shape: tuple[int, ...], dtype: DType) -> ArrayView:
    """What will be allocated."""
    return ArrayView(0, dtype, shape, contiguous_strides(shape), like.device)
