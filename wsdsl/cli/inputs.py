"""Random inputs for a kernel, and how far its outputs are from the reference."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from wsdsl.cli.options import check_names
from wsdsl.cli.source_argument import outputs
from wsdsl.ir.op import Kernel as IrKernel
from wsdsl.ir.op import Region, Value, regions
from wsdsl.ir.ops import ForEach, ForTiles, Store
from wsdsl.ir.types import Sizes, Tensor, Tile
from wsdsl.lowering.axes import loop_variable

if TYPE_CHECKING:
    import numpy as np

TOLERANCE = {"f32": 2.0**-12, "f16": 2.0**-10, "bf16": 2.0**-8}
"""Largest relative error ‖out − reference‖ / ‖reference‖, by the output's element type."""
SMALLEST_TILE = 8


def tolerances(kernel: IrKernel, tile: Sizes, sizes: Sizes) -> dict[str, float]:
    """By output, under tiles of these sizes. Each addition to memory rounds by itself, up or down:
    of random numbers, the errors of n of them grow like the root of n.
    """
    added = additions(kernel, tile, sizes)
    found: dict[str, float] = {}
    for p in outputs(kernel):
        own = TOLERANCE.get(str(p.type.dtype), 0.0)
        found[p.name] = own * math.sqrt(1 + added.get(p.name, 0))
    return found


def additions(kernel: IrKernel, tile: Sizes, sizes: Sizes) -> Counter[str]:
    """How often an element of each tensor is added to, at most."""
    found: Counter[str] = Counter()

    def visit(region: Region, loops: tuple[tuple[Value, int, int], ...]) -> None:
        for op in region:
            if isinstance(op, Store) and op.accumulate:
                # Of a scatter all rows may be the same one.
                scattered = any(isinstance(v.type, Tile) and v.type.axes for v in op.index)
                others = [loop for loop in loops if loop[0] not in op.index]
                found[op.tensor.name] += math.prod(n if scattered else t for _, n, t in others)
            inner = loops
            if isinstance(op, ForEach):
                inner = (*loops, (op.index, sizes[op.dim], sizes[op.dim]))
            elif isinstance(op, ForTiles):
                axis, num = op.index.as_axis, sizes[op.dim]
                by = axis.size or tile.get(loop_variable(axis.name), SMALLEST_TILE)
                inner = (*loops, (op.index, num, 1 if op.whole else -(-num // by)))
            for body in regions(op):
                visit(body, inner)

    visit(kernel.body, ())
    return found


def random_arguments(
    kernel: IrKernel, sizes: dict[str, int], scalars: dict[str, float], seed: int
) -> list[Any]:
    """Random inputs by dtype in the order of the call; zeros for what the kernel only writes.

    MemoryError where they are more than this machine has, three times: for each result and the
    reference's.
    """
    import numpy as np

    from wsdsl.runtime.arrays.interop import numpy_dtype
    from wsdsl.tune.memory import bytes_shape, random_array

    named = [p.name for p in kernel.params if isinstance(p.type, Tile)]
    check_names(scalars, named, "scalar", kernel.name)
    generator = np.random.default_rng(seed)
    updated = {op.tensor.name for op in kernel.of(Store) if op.accumulate}
    only_written = {p.name for p in outputs(kernel)} - updated
    tensors = [(p.name, p.type) for p in kernel.params if isinstance(p.type, Tensor)]
    shapes = {n: tuple(sizes[d] if isinstance(d, str) else d for d in t.dims) for n, t in tensors}
    require_memory({n: t.dtype.size(math.prod(shapes[n])) for n, t in tensors})
    made: list[Any] = []
    for p in kernel.params:
        if isinstance(p.type, Tensor):
            shape = shapes[p.name]
            if p.name in only_written:
                held = bytes_shape(p.type.dtype, shape)
                made.append(np.zeros(held, numpy_dtype(p.type.dtype)))
            else:
                made.append(random_array(generator, p.type.dtype, shape))
        elif isinstance(p.type, Tile):
            value = scalars.get(p.name, 1.0)
            made.append(value if p.type.dtype.is_float else int(value))
    return made


def require_memory(bytes_of: Mapping[str, int]) -> None:
    """MemoryError if the arrays, with a copy for each of two results, are more than there is."""
    needed = 3 * sum(bytes_of.values())
    if not hasattr(os, "sysconf"):
        return
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        largest = max(bytes_of, key=lambda name: bytes_of[name])
        raise MemoryError(
            f"all arrays with their copies need {needed / 2**30:,.1f} GiB of memory "
            f"(`{largest}` alone {bytes_of[largest] / 2**30:,.1f}); {there / 2**30:,.1f} GiB exist"
        )


def copies(arguments: Iterable[Any]) -> list[Any]:
    return [a.copy() if hasattr(a, "copy") else a for a in arguments]


def relative_error(out: np.ndarray[Any, Any], reference: np.ndarray[Any, Any]) -> float:
    """‖out − reference‖ / ‖reference‖ in f64; infinite where one is finite and the other is not."""
    import numpy as np

    a, b = out.astype(np.float64), reference.astype(np.float64)
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    finite = np.isfinite(b)
    difference, norm = (float(np.linalg.norm(x[finite].ravel())) for x in (a - b, b))
    if norm == 0:
        return 0.0 if difference == 0 else float("inf")
    return difference / norm
