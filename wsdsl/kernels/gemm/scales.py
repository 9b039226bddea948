"""Which scales an array holds: one for all, one a row, or one a block of 128 elements of K."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wsdsl.diagnostics import Finding, LaunchError
from wsdsl.kernels.gemm.form import BLOCK
from wsdsl.kernels.gemm.shapes import viewed
from wsdsl.runtime.views import ArrayView


def blocks(size: int) -> int:
    return -(-size // BLOCK)


def scales_of(
    name: str, view: ArrayView, rows: str, sizes: Mapping[str, int], batch: Sequence[int], own: int
) -> tuple[ArrayView, tuple[str, ...]]:
    """The scales of an operand whose rows are `rows`, M or N, and which has `own` batch dimensions
    itself, and their axes after the batch's; none for a single scale.

    Where a shape may be read in several ways, it is the one that has as many batch dimensions as
    the operand, or nearly: weights without a batch have scales without one, whatever they multiply.
    What is no other shape may have an axis of 1 beside `rows`, as torch's [M, 1] and [1, N] do.
    LaunchError for a shape that is none of them.
    """
    if view.dtype.name != "f32":
        raise LaunchError(Finding(f"{name} is {view.dtype}, expected f32", hint="convert it"))
    if all(n == 1 for n in view.shape):
        return viewed(view, (), ()), ()
    kinds = _kinds(rows, sizes)
    found = [x for x in kinds if _fits(view.shape, [_size(y, sizes) for y in x], batch)]
    if found:
        return view, min(found, key=lambda axes: abs(len(view.shape) - len(axes) - own))
    for vector in _vectors(view):
        if _fits(vector.shape, [sizes[rows]], batch):
            return vector, (rows,)
    size, groups = sizes[rows], blocks(sizes["K"])
    hint = (
        f"one element, [{size}], [{size}, {groups}] or [{blocks(size)}, {groups}]: one for each of "
        f"{rows}, for each and {BLOCK} of K, or for each {BLOCK} x {BLOCK}; batch dimensions may "
        "come before"
    )
    operand = name.removeprefix("scale_")
    message = f"{name} has shape {view.shape}, which scales of {operand} do not have"
    raise LaunchError(Finding(message, hint=hint))


def _vectors(view: ArrayView) -> Iterator[ArrayView]:
    """The array without one of its last two axes, where that is 1."""
    for at in range(max(0, len(view.shape) - 2), len(view.shape)):
        if view.shape[at] == 1:
            shape, strides = (x[:at] + x[at + 1 :] for x in (view.shape, view.strides))
            yield viewed(view, shape, strides)


def _kinds(rows: str, sizes: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    yield (rows,)
    yield rows, "KB"
    if sizes[rows] > 1:  # of one row the same as the kind before
        yield f"{rows}B", "KB"


def _size(axis: str, sizes: Mapping[str, int]) -> int:
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
