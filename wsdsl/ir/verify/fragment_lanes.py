"""Rules about fragments that lanes hold in another order than an accumulator's."""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir import ops
from wsdsl.ir.hardware.swizzle import VECTOR
from wsdsl.ir.op import Kernel, Problem, operands, results_of
from wsdsl.ir.ops import AddBins
from wsdsl.ir.types import ACCUMULATOR, THREADS, Fragment

BY_ANY_LANES = (
    ops.Bitcast, ops.Cast, ops.Full, ops.If, ops.Lookup, ops.Map, ops.Yield, ops.ForRange,
    ops.Iota, ops.JoinColumns, ops.ReduceColumns, ops.ScanColumns, ops.SliceColumns, ops.LoadGlobal,
    ops.ReducePartials, ops.StoreGlobal, ops.StorePartials, ops.LoadTransposed,
    ops.StoreTransposed, AddBins,
)  # fmt: skip
"""What lanes may hold in another order than an accumulator's."""


def lanes_agree(kernel: Kernel) -> Iterator[Problem]:
    held = (v.type.lanes for v in kernel.defined if isinstance(v.type, Fragment))
    if all(lanes == ACCUMULATOR for lanes in held):
        return
    for op in kernel.ops:
        types = [v.type for v in (*operands(op), *results_of(op))]
        kinds = [kind for kind in types if isinstance(kind, Fragment)]
        held = {kind.lanes for kind in kinds}
        if len(held) > 1 and not isinstance(op, ops.If | ops.Yield | ops.ForRange):
            yield op, "the fragments have several lane layouts"
        for lanes in held - {ACCUMULATOR}:
            vector, across, _, tall = lanes
            own = [kind for kind in kinds if kind.lanes == lanes]
            high = [kind.rows for kind in own if kind.rows > 1]
            if not isinstance(op, BY_ANY_LANES):
                yield op, f"lanes {vector}x{across}: the op needs the lanes of an accumulator"
            elif across not in (2, 4, 8, 16, 32, 64, 128) or vector not in (1, 2, 4, 8, 16):
                yield op, f"lanes {vector}x{across}: legal are 2 to 128 lanes of 1 to 16 elements"
            elif any(rows * across % THREADS for rows in high):
                yield op, f"lanes {vector}x{across}: the fragment has fewer rows than lanes share"
            elif tall > 1 and any(lanes.warps > 1 or lanes.held(rows) % tall for rows in high):
                yield op, f"lanes {vector}x{across}: no thread has {tall} adjacent rows"
            elif tall > 1 and isinstance(op, ops.StorePartials | ops.ReducePartials):
                yield op, "partials need lanes that have one row each (tall = 1)"
            elif any(kind.columns > 1 and kind.columns % lanes.columns for kind in own):
                yield op, f"lanes {vector}x{across} need a multiple of {lanes.columns} columns"


def fault_of_lines(op: ops.StoreTransposed | ops.LoadTransposed) -> str:
    """Return why fragments cannot be transposed by SMEM."""
    if isinstance(op, ops.StoreTransposed):
        kinds = [v.type for v in op.parts]
        held = [k for k in kinds if isinstance(k, Fragment)]
        if not held or len({(k.dtype, k.columns, k.lanes) for k in kinds if k in held}) > 1:
            return "the parts may differ only in their rows"
        length = sum(k.rows for k in held)
        fits = all(k.rows > 1 for k in held) and held[0].columns > 1 and len(held) == len(kinds)
    else:
        kind = op.result.type
        if not isinstance(kind, Fragment):
            return f"{kind} has no rows"
        held, length = [kind], op.length
        fits = op.first + kind.columns <= length and min(kind.rows, kind.columns) > 1
    size = length * held[0].dtype.bytes
    if not fits or held[0].dtype.bits < 8 or size % VECTOR or held[0].lanes == ACCUMULATOR:
        return f"{', '.join(map(str, held))} cannot be transposed with rows of {size} bytes"
    return ""
