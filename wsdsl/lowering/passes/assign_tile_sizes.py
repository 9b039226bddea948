"""Write the schedule's tile sizes to the axes.

Before:
    for_tiles(index=%m: axis<m of M rows>) {
After:
    for_tiles(index=%m: axis<m of M by 128 rows>) {

Why here: from now on sizes are read off the axes alone.
"""

from __future__ import annotations

import dataclasses

from wsdsl.ir.op import Kernel
from wsdsl.lowering.axes import change_axes
from wsdsl.lowering.footprint import axis_sizes


def assign_tile_sizes(kernel: Kernel) -> Kernel:
    assert kernel.schedule is not None
    sizes = axis_sizes(kernel, kernel.schedule)
    return change_axes(kernel, lambda axis: dataclasses.replace(axis, size=sizes[axis.name]))
