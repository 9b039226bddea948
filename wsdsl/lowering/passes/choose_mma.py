"""The columns of a product may ride wgmma's M: rows then come in steps of 8, columns of 64. That is
for few rows, since M is 64 whatever is asked for, and for others where tiles come out evener
(`choice/swapped.py`). The way is taken that is predicted to be quicker.

Before: `schedule=Schedule()`, for A[m, k] @ B[n, k] with 16 rows of A
After: `schedule=Schedule(mma="n")`

Why here: which axes become rows follows from it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import partial

from wsdsl.diagnostics import WsdslError
from wsdsl.ir.op import Kernel
from wsdsl.ir.tile_ops import Contract
from wsdsl.lowering.axes import axes_of, free_axes, loop_variable
from wsdsl.lowering.choice.swapped import LEAST_GAIN, may_be_swapped
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.model.predict import predict
from wsdsl.lowering.model.workload import FEW_COLUMNS, Work
from wsdsl.lowering.passes.assign_roles import assign_roles
from wsdsl.lowering.passes.choose_schedule import Tried, choose_schedule, weight
from wsdsl.schedule import Schedule

FEWEST = 32
"""For so few rows the columns always ride: of a tile of 64 the other rows are loaded as zeros,
which takes TMA longer than to copy (16 x 10240 x 8192: 55.2 us, 42.7 swapped; 32 x 5120 x 5120:
22.4 and 15.7; 1 x 28672 x 8192: 114.8 and 107.5), and the model does not know.
"""


def choose_mma(
    kernel: Kernel, sizes: Mapping[str, int] | None = None, tried: Tried | None = None
) -> Kernel:
    """`sizes`: dimensions at launch; where one is not known nothing is chosen. The schedules that
    are looked at are left in `tried`.
    """
    schedule = kernel.schedule or Schedule()
    if schedule.mma is not None or not sizes:
        return kernel
    known = dict(kernel.sizes) | dict(sizes)
    cycles = partial(_cycles, sizes=known, tried=Tried() if tried is None else tried)
    extents = {name: known.get(axis.dim, 0) for name, axis in axes_of(kernel).items()}
    for op in kernel.ops:
        if isinstance(op, Contract):
            first, second = (next(iter(side), "") for side in free_axes(op))
            few, many = extents.get(first, 0), extents.get(second, 0)
            chosen = dataclasses.replace(schedule, mma=loop_variable(second))
            swapped = dataclasses.replace(kernel, schedule=chosen)
            if 0 < few <= FEW_COLUMNS < many:
                if few <= FEWEST and not schedule.tile and cycles(swapped) < math.inf:
                    return swapped
                return min((kernel, swapped), key=cycles)
            large = min(few, many) > FEW_COLUMNS and all(extents.values())
            if large and may_be_swapped(kernel, first, second):
                return swapped if cycles(swapped) * LEAST_GAIN < cycles(kernel) else kernel
    return kernel


def _cycles(kernel: Kernel, sizes: Mapping[str, int], tried: Tried) -> float:
    """Of the best schedule; no end to it, if the axes can not be laid out so."""
    try:
        posed = assign_roles(kernel)
        chosen = choose_schedule(posed, sizes, tried)
    except WsdslError:
        return math.inf
    assert chosen.schedule is not None
    tried[posed] = chosen.schedule
    tile = axis_sizes(chosen, chosen.schedule)
    return weight(chosen.schedule, predict(Work(chosen, sizes), chosen.schedule, tile))
