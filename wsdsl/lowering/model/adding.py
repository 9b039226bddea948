"""What kernels without products add to memory at places that they compute, by L2 or in SMEM.

L2 adds to so many sectors a cycle; one has eight f32 that lie side by side, or one element where
each has a place of its own, and then those of a line come one after the other. To counters in SMEM
an SM adds those of a warp at once, where their banks differ; at the end each CTA adds all of its
own up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from wsdsl.ir.counter_layout import WARP, WORD
from wsdsl.ir.op import Kernel
from wsdsl.ir.tile_ops import Store
from wsdsl.ir.types import Axis
from wsdsl.lowering.axes import is_scattered
from wsdsl.lowering.counters import counters_of
from wsdsl.schedule import Schedule

if TYPE_CHECKING:
    from wsdsl.lowering.model.workload import Work

SECTORS, FAR_SECTORS, SECTOR, LINE = 29.0, 17.0, 32, 128
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


class Adding:
    """By the elements that each store adds, in all."""

    def __init__(self, kernel: Kernel, work: Work, stores: Iterable[tuple[Store, int]]) -> None:
        self.kernel, self.work = kernel, work
        self.stores = [(op, elements) for op, elements in stores if op.accumulate]

    def in_l2(self, schedule: Schedule) -> float:
        """Cycles for what is added to memory, but for what CTAs add in the end."""
        counted, total = schedule.counters or {}, 0.0
        for op, elements in self.stores:
            if op.tensor.name in counted:
                continue
            lines = max(1.0, self.work.num_bytes(op.tensor.type) / LINE)
            if not isinstance(op.index[-1].type, Axis) and is_scattered(op):
                total += elements / min(ALONE, max(AT_LEAST, OF_LINE * lines))
                continue
            is_far = lines * LINE > self.work.rates.l2_capacity_bytes
            most = FAR_SECTORS if is_far else SECTORS
            total += elements * op.dtype.bits / 8 / SECTOR / most
        return total

    def in_smem(self, schedule: Schedule) -> float:
        """Cycles of each SM for additions to counters."""
        planned = counters_of(self.kernel, schedule)
        copies, total = {held.tensor: held.copies for held in planned}, 0.0
        for op, elements in self.stores:
            if op.tensor.name in copies:
                each = BY_HAND if op.dtype.is_float else COUNTED
                conflicts = 1 + math.log2(WARP / copies[op.tensor.name]) / 2
                total += elements / WARP * each * conflicts / self.work.target.num_sms
        return total

    def at_end(self, schedule: Schedule, ctas: float) -> float:
        """Cycles for counters of so many CTAs, which are cleared, added up and added to memory."""
        on_sm, total = schedule.ctas_per_sm or 1, 0.0
        for held in counters_of(self.kernel, schedule):
            count = math.prod(held.extents)
            lines = max(1.0, count * WORD / LINE)
            total += on_sm * count * held.copies * SUMMED
            total += ctas * count * WORD / SECTOR / min(SECTORS, lines)
        return total
