"""Write the schedule's tile sizes to the axes.

Before:
    for_tiles(index=%m: axis<m of M rows>) {
After:
    for_tiles(index=%m: axis<m of M by 128 rows>) {

With several widths (`Schedule.tile_n_variants`) the output's axis of columns says how many.

Why here: from now on sizes are read off the axes alone.
"""

import dataclasses

from wsdsl.ir.op import Kernel
from wsdsl.ir.types import Axis
from wsdsl.lowering.axes import change_axes, output_nest
from wsdsl.lowering.footprint import axis_sizes


def assign_tile_sizes(kernel: Kernel) -> Kernel:
    assert kernel.schedule is not None
    sizes, widths = axis_sizes(kernel, kernel.schedule), kernel.schedule.tile_n_variants or 1
    of_output = {loop.index.type for loop in output_nest(kernel)[0]}

    def change(axis: Axis) -> Axis:
        own = widths if axis in of_output and axis.role == "columns" else 1
        return dataclasses.replace(axis, size=sizes[axis.name], widths=own)

    return change_axes(kernel, change)
