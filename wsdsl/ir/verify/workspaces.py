"""Rules of workspace tensors, and of the grids whose CTAs hand sums on in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from wsdsl.ir.op import Kernel, Problem, Value, operands, operands_in, results_of
from wsdsl.ir.ops import AllocateGlobal, ByElements, Iota, LaunchGrid, Load, Store, grid_of
from wsdsl.ir.tile_scheduler import tile_scheduler
from wsdsl.ir.types import Fragment, Tensor


def cuts_tiles(op: LaunchGrid) -> bool:
    return tile_scheduler(op.scheduler, op.splits).splits_tiles


def workspace_has_slots(kernel: Kernel) -> Iterator[Problem]:
    """Only their first dimension is as long as the number of the grid's workspace entries."""
    grid = grid_of(kernel)
    tensors = [v.type for v in kernel.params]
    tensors += [op.result.type for op in kernel.of(AllocateGlobal)]
    used = Counter(d for kind in tensors if isinstance(kind, Tensor) for d in kind.dims)
    used.update(dim for dim, _ in kernel.sizes)
    if grid is not None:
        used.update(dim for dim, _ in (*grid.tiles, *grid.contraction))
    for op in kernel.of(AllocateGlobal):
        kind = op.result.type
        if not any(op is own for own in kernel.body):
            yield op, "a workspace must be allocated outside of any region"
        if grid is None or not cuts_tiles(grid):
            yield op, 'a workspace needs scheduler="stream_k" or "split_k"'
        elif op.each < 1 or op.each % grid.cluster:
            yield op, f"each={op.each} must be a multiple of the {grid.cluster} CTAs of a cluster"
        if not isinstance(kind, Tensor) or not kind.dims:
            yield op, "a workspace must be a tensor"
            continue
        first, *rest = kind.dims
        if not isinstance(first, str) or used[first] > 1:
            yield op, "the first dimension of a workspace needs a unique name"
        if not all(isinstance(dim, int) and dim > 0 for dim in rest):
            yield op, "all dimensions of a workspace but the first must be numbers"


def fragments_are_whole_blocks(kernel: Kernel) -> Iterator[Problem]:
    """That they begin at a block's first line and column, the prover shows."""
    lent = {op.result: op for op in kernel.of(AllocateGlobal) if op.fragments}
    if not lent:
        return
    for tensor, op in lent.items():
        kind = tensor.as_tensor
        columns = kind.dims[-1] if len(kind.dims) == 2 else 0
        if kind.dtype.bits != 32 or not isinstance(columns, int) or not columns or columns % 8:
            yield op, "a workspace of fragments needs a multiple of 8 columns of 32 bits"
        if op.each % 64:
            yield op, f"each={op.each} must be a multiple of 64 rows"
    for op in kernel.ops:
        if not any(v in lent for v in operands(op)):
            continue
        # Fragments of tiles are known after lowering.
        held = (*results_of(op), *operands_in(op, ("value",) if hasattr(op, "value") else ()))
        in_blocks = isinstance(op, ByElements) and _in_blocks(kernel, op.index, held[0])
        if not in_blocks and not isinstance(op, Load | Store):
            yield op, "a workspace of fragments is accessed in blocks of 64 x 8 only"


def _in_blocks(kernel: Kernel, index: tuple[Value, ...], held: Value) -> bool:
    made = (kernel.definers.get(v) for v in index)
    if any(isinstance(op, Iota) and op.apart != 16 for op in made):
        return False
    kinds = [v.type for v in (*index, held)]
    match kinds:
        case [Fragment(_, 64, 1), Fragment(_, 1, wide), Fragment(_, 64, columns)]:
            return wide == columns and columns % 8 == 0
        case _:
            return False
