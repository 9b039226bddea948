"""What kernels without products add to memory at places that they compute, by L2 or in SMEM.

L2 adds to so many sectors a cycle; one has eight f32 that lie side by side, or one element where
each has a place of its own, and then those of a line come one after the other. To counters in SMEM
an SM adds those of a warp at once, where their banks differ; in the end each CTA adds up its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from wsdsl.ir.counter_layout import WARP, WORD
from wsdsl.ir.tile_ops import Store
from wsdsl.ir.types import Axis
from wsdsl.lowering.axes import is_scattered
from wsdsl.lowering.counters import counters_of
from wsdsl.lowering.model.terms import SECTOR_BYTES
from wsdsl.schedule import Schedule

if TYPE_CHECKING:
    from wsdsl.lowering.model.workload import Work

SECTORS, FAR_SECTORS, LINE = 29.0, 17.0, 128
"""Sectors that L2 adds to a cycle, of what it holds and of what it has to bring from memory, as
measured on an H100 of rows of f32 (`scatter_add`); and bytes."""
ALONE, OF_LINE, AT_LEAST = 44.0, 0.21, 2.0
"""The same of elements by themselves: at the most, of each line, and of few lines. 2²⁴ numbers in
2²⁰ bins take 215 us there, in 1024 1438, and in 64 4880."""
COUNTED, BY_HAND = 2.0, 12.0
"""Cycles of an SM for a warp's additions to counters: of integers, and of f32, which SMEM does not
add by itself."""
SUMMED = 0.04
"""Cycles of an SM for a counter that is cleared and added up."""


def adding_cycles(
    work: Work, added: Iterable[tuple[Store, int]], schedule: Schedule, ctas: float
) -> tuple[float, float, float]:
    """Of L2, of each SM, and in the end, for the counters of so many CTAs. `added`: elements in all
    that each store adds.
    """
    counters = {held.tensor: held for held in counters_of(work.kernel, schedule)}
    in_l2 = in_smem = at_end = 0.0
    for op, elements in added:
        lines = max(1.0, work.num_bytes(op.tensor.type) / LINE)
        if held := counters.get(op.tensor.name):
            conflicts = 1 + math.log2(WARP / held.copies) / 2
            each = (BY_HAND if op.dtype.is_float else COUNTED) * conflicts
            in_smem += elements / WARP * each / work.target.num_sms
        elif not isinstance(op.index[-1].type, Axis) and is_scattered(op):
            in_l2 += elements / min(ALONE, max(AT_LEAST, OF_LINE * lines))
        else:
            is_far = lines * LINE > work.rates.l2_capacity_bytes
            sectors = elements * op.dtype.bits / 8 / SECTOR_BYTES
            in_l2 += sectors / (FAR_SECTORS if is_far else SECTORS)
    for held in counters.values():
        count = math.prod(held.extents)
        at_end += (schedule.ctas_per_sm or 1) * count * held.copies * SUMMED
        lines = max(1.0, count * WORD / LINE)
        at_end += ctas * count * WORD / SECTOR_BYTES / min(SECTORS, lines)
    return in_l2, in_smem, at_end
