"""Which scales an array holds: one for all, one a row, or one a block of 128 elements of K."""

from collections.abc import Iterator, Sequence

from wsdsl.diagnostics import Finding, LaunchError
from wsdsl.ir.types import DType, Sizes
from wsdsl.kernels.gemm.matmul_source import BLOCK
from wsdsl.runtime.arrays.views import ArrayView, contiguous_strides


def blocks(size: int) -> int:
    return -(-size // BLOCK)


Reading = tuple[ArrayView, tuple[str, ...]]
"""Scales, and their axes after the batch's; none for a single scale."""


def readings(
    view: ArrayView, rows: str, sizes: Sizes, batch: Sequence[int], own: int, *, along_k: bool
) -> list[Reading]:
    """List the valid interpretations of an array as scale factors, best first. The operand's rows
    are `rows` (M or N) and it has `own` batch dimensions; `along_k`: scales may vary along K.

    The first has a number of batch dimensions closest to the operand's, so that weights without a
    batch have scales without one, also in batched matmuls. Scales that vary along K come before
    vectors with an axis of size 1, as torch's [M, 1] and [1, N]; with a single block of K, where
    both mean the same, vectors come first.
    """
    if all(n == 1 for n in view.shape):
        return [(viewed(view, (), ()), ())]
    kinds = [x for x in _kinds(rows, sizes) if along_k or "KB" not in x]
    found = [x for x in kinds if _fits(view.shape, [_size(y, sizes) for y in x], batch)]
    found.sort(key=lambda axes: abs(len(view.shape) - len(axes) - own))
    vectors: list[Reading] = [
        (x, (rows,)) for x in _vectors(view, rows) if _fits(x.shape, [sizes[rows]], batch)
    ]
    whole: list[Reading] = [(view, axes) for axes in found]
    return vectors + whole if blocks(sizes["K"]) == 1 and (rows,) not in found else whole + vectors


def likely(own: list[Reading], other: list[Reading]) -> Reading:
    """Choose an operand's interpretation given the other operand's: a vector if the other's scales
    are a vector, and these may be one; else the first."""
    vectors = (x for x in own if "KB" not in x[1])
    beside_vector = any(len(axes) == 1 for _, axes in other[:1])
    return next(vectors, own[0]) if beside_vector else own[0]


def no_scales(name: str, view: ArrayView, rows: str, sizes: Sizes) -> Finding:
    size, groups = sizes[rows], blocks(sizes["K"])
    hint = (
        f"give one element, [{size}], [{size}, {groups}] or [{blocks(size)}, {groups}]: one per "
        f"index of {rows}, also per {BLOCK} of K, or per {BLOCK} x {BLOCK} block; batch "
        "dimensions may precede"
    )
    operand = name.removeprefix("scale_")
    message = f"WS0818 {name} has shape {view.shape}, which does not fit scale factors of {operand}"
    return Finding(message, hint=hint)


def _vectors(view: ArrayView, rows: str) -> Iterator[ArrayView]:
    """The array without the last of its axes, of columns' also without the last but one, where
    that is 1."""
    last = len(view.shape) - 1
    for at in (last,) if rows == "M" else (last - 1, last):
        if at >= 0 and view.shape[at] == 1:
            shape, strides = (x[:at] + x[at + 1 :] for x in (view.shape, view.strides))
            yield viewed(view, shape, strides)


def _kinds(rows: str, sizes: Sizes) -> Iterator[tuple[str, ...]]:
    yield (rows,)
    yield rows, "KB"
    if sizes[rows] > 1:  # of one row the same as the kind before
        yield f"{rows}B", "KB"


def _size(axis: str, sizes: Sizes) -> int:
    return blocks(sizes[axis[0]]) if axis.endswith("B") else sizes[axis]


def _fits(shape: Sequence[int], matrix: Sequence[int], batch: Sequence[int]) -> bool:
    lead = len(shape) - len(matrix)
    return 0 <= lead <= len(batch) and list(shape[lead:]) == list(matrix) and broadcasts(
        shape[:lead], batch
    )  # fmt: skip


def broadcasts(shape: Sequence[int], batch: Sequence[int]) -> bool:
    """Whether leading dimensions broadcast to those of the result."""
    tail = batch[len(batch) - len(shape) :]
    return len(shape) <= len(batch) and all(n in (1, m) for n, m in zip(shape, tail))


def as_matrix(name: str, view: ArrayView, transposed: bool, axes: tuple[str, str]) -> ArrayView:
    """The operand with its axes in the order of the product; a vector gets the one it lacks."""
    shape, strides = view.shape, view.strides
    if not shape:
        raise LaunchError(f"WS0819 {name} is a scalar, expected a matrix", hint="multiply by `*`")
    if len(shape) == 1:
        if transposed:
            message = f"WS0820 transpose_{name} is True, but {name} is a vector of shape {shape}"
            raise LaunchError(message, hint=f"leave transpose_{name} out")
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
        raise wrong_batch("a", a[:-2], "b", b[:-2])
    return tuple(n if m == 1 else m for m, n in zip(left, right))


def wrong_batch(x: str, of_x: Sequence[int], y: str, of_y: Sequence[int]) -> LaunchError:
    message = f"WS0821 {x} has batch dimensions {tuple(of_x)}, {y} has {tuple(of_y)}"
    return LaunchError(message, hint="give equal batch dimensions, or 1")


def inner_sizes(both: Sequence[ArrayView], transposed: Sequence[bool], a: int, b: int) -> Finding:
    """Why the operands do not go together."""
    told = [
        f"{x} has shape {view.shape}" + (f" (transpose_{x}=True)" if flag else "")
        for x, view, flag in zip("ab", both, transposed)
    ]
    hint = "give a as [..., M, K] and b as [..., K, N]"
    if not transposed[1] and len(both[1].shape) > 1 and both[1].shape[-1] == a:
        hint += "; give b.T, or transpose_b=True, for a b that is [..., N, K]"
    return Finding(f"WS0822 {' and '.join(told)}: K is {a} in a and {b} in b", hint=hint)


def viewed(view: ArrayView, shape: tuple[int, ...], strides: tuple[int, ...]) -> ArrayView:
    """The geometry alone, for what is decided by it."""
    return ArrayView(view.pointer, view.dtype, shape, strides, view.device)


def contiguous(like: ArrayView, shape: tuple[int, ...], dtype: DType) -> ArrayView:
    """The view of an array that is not allocated yet: contiguous, at address 0."""
    return ArrayView(0, dtype, shape, contiguous_strides(shape), like.device)
