"""Tensors as strides by the name of an axis: batches are aligned, merged, and folded into rows.

An axis along which a tensor does not vary is left out of its strides, as a broadcast has it.
"""

from collections.abc import Iterable, Sequence

Strides = dict[str, int]
"""Elements from one index to the next, by axis."""
Sizes = dict[str, int]


def batch_axes(rank: int) -> list[str]:
    """Names of the leading axes, outermost first."""
    return [f"batch{i}" for i in range(rank)]


def strides_of(
    shape: Sequence[int], strides: Sequence[int], matrix: Sequence[str], rank: int
) -> Strides:
    """Of a tensor of some batch axes, aligned to the right with all `rank` of them, and `matrix`.

    Batch axes of size 1 and of stride 0 are left out.
    """
    lead = len(shape) - len(matrix)
    names = batch_axes(rank)[rank - lead :]
    found = {x: s for x, s, n in zip(names, strides, shape) if s and n != 1}
    return found | dict(zip(matrix, strides[lead:]))


def merge_batches(sizes: Sizes, batch: Sequence[str], tensors: Iterable[Strides]) -> list[str]:
    """The batch axes that are left; `sizes` and the tensors' strides are changed with them.

    Adjacent axes merge where every tensor's strides allow it, and the innermost become rows of M
    where nothing else varies along them: [B, S, K] @ [K, N] is one matmul of B * S rows.
    """
    tensors = list(tensors)
    left: list[str] = []
    for axis in batch:
        if sizes[axis] == 1:
            _forget(axis, tensors)
        elif left and all(t.get(left[-1], 0) == t.get(axis, 0) * sizes[axis] for t in tensors):
            sizes[axis] *= sizes[left[-1]]
            _forget(left.pop(), tensors)
            left.append(axis)
        else:
            left.append(axis)
    while left and all(_folds(t, left[-1], sizes["M"]) for t in tensors):
        axis = left.pop()
        for t in tensors:
            if "M" in t and sizes["M"] == 1:
                t["M"] = t.get(axis, 0)
        _forget(axis, tensors)
        sizes["M"] *= sizes[axis]
    return left


def _forget(axis: str, tensors: Iterable[Strides]) -> None:
    for t in tensors:
        t.pop(axis, None)


def _folds(t: Strides, axis: str, rows: int) -> bool:
    if "M" in t and rows == 1:
        # A vector stays contiguous; a tensor that has another axis is read row by row.
        return t.get(axis, 0) == 1 or any(x in t for x in ("N", "K", "KB"))
    if "M" in t:
        return t.get(axis, 0) == t["M"] * rows
    return axis not in t and "MB" not in t


def contiguous_last(
    t: Strides, sizes: Sizes, axes: tuple[str, str], *, either: bool = True
) -> tuple[str, str] | None:
    """The two axes with a contiguous one last, in their own order if that is possible.

    None if neither is contiguous, or, unless `either`, the second is not.
    """
    first, last = axes

    def walks(x: str) -> bool:
        return sizes[x] > 1 and t[x] == 1

    if walks(last):
        return first, last
    if either and walks(first):
        return last, first
    if sizes[last] <= 1 or not sizes[first]:
        return first, last
    return (last, first) if either and sizes[first] <= 1 else None
