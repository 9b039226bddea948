"""Rules about fragments that lanes hold in another order than an accumulator's."""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir.op import Kernel, Problem, operands, regions, results_of
from wsdsl.ir.ops import ReducePartials, StorePartials, Yield
from wsdsl.ir.types import ACCUMULATOR, THREADS, Fragment


def lanes_agree(kernel: Kernel) -> Iterator[Problem]:
    held = (v.type.lanes for v in kernel.defined if isinstance(v.type, Fragment))
    if all(lanes == ACCUMULATOR for lanes in held):
        return
    for op in kernel.ops:
        types = [v.type for v in (*operands(op), *results_of(op))]
        kinds = [kind for kind in types if isinstance(kind, Fragment)]
        held = {kind.lanes for kind in kinds}
        if len(held) > 1 and not (regions(op) or isinstance(op, Yield)):
            yield op, "the fragments have several lane layouts"
        for lanes in held - {ACCUMULATOR}:
            vector, across, _, tall = lanes
            own = [kind for kind in kinds if kind.lanes == lanes]
            high = [kind.rows for kind in own if kind.rows > 1]
            if not op.any_lanes:
                yield op, f"lanes {vector}x{across}: the op needs the lanes of an accumulator"
            elif across not in (2, 4, 8, 16, 32, 64, 128) or vector not in (1, 2, 4, 8, 16):
                yield op, f"lanes {vector}x{across}: legal are 2 to 128 lanes of 1 to 16 elements"
            elif any(rows * across % THREADS for rows in high):
                yield op, f"lanes {vector}x{across}: the fragment has fewer rows than lanes share"
            elif tall > 1 and any(lanes.warps > 1 or lanes.held(rows) % tall for rows in high):
                yield op, f"lanes {vector}x{across}: no thread has {tall} adjacent rows"
            elif tall > 1 and isinstance(op, StorePartials | ReducePartials):
                yield op, "partials need lanes that have one row each (tall = 1)"
            elif any(kind.columns > 1 and kind.columns % lanes.columns for kind in own):
                yield op, f"lanes {vector}x{across} need a multiple of {lanes.columns} columns"
