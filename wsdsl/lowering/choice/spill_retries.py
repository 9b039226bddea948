"""Other choices of tiles, where ptxas has too few registers for the first."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator

from wsdsl.ir.op import Kernel
from wsdsl.lowering.axes import axes_of, loop_variable
from wsdsl.lowering.choice.fixed_tiles import with_fixed_tiles
from wsdsl.lowering.footprint import accumulator_registers, promoted_registers
from wsdsl.schedule import Schedule

SHARES = ((64, 0.92), (512, 0.75), (math.inf, 0.5))
"""Where so many bytes spill, at the most, what share of the registers for sums is tried next. With
gelu, bias, residual and two results 192 columns in ping-pong spill 2644, 176 1684, 144 652, 128 332
and 96 nothing.
"""
MOST_TRIES = 3
"""Each takes ptxas half a second, or two where it spills much."""
WIDTHS = (192, 128, 64, 32)


def with_fewer_sums(
    kernel: Kernel, options: Iterable[Schedule], failed: Schedule, spilled: int
) -> Schedule | None:
    """Of the ways that are left open, best first, the first whose threads hold so many fewer sums
    than under `failed` as what it spilled suggests.
    """
    most = next(share for limit, share in SHARES if spilled <= limit) * _sums(kernel, failed)
    return next((o for o in options if 0 < _sums(kernel, o) <= most), None)


def _sums(kernel: Kernel, schedule: Schedule) -> int:
    """Registers of a thread that hold them."""
    return accumulator_registers(kernel, schedule) + promoted_registers(kernel, schedule)


def narrower(source: Kernel, kernel: Kernel, given: Schedule | None) -> Iterator[Schedule]:
    """`given` with fewer and fewer columns in the widest tiles of a PARTITIONED kernel; none where
    `given` or the `source` says how many there are: by now all loops over tiles have a size.
    """
    given = given or Schedule()
    known = (with_fixed_tiles(source, given)[0].tile or {}).keys()
    widths = {
        loop_variable(axis.name): axis.size
        for axis in axes_of(kernel).values()
        if axis.role == "columns" and not {axis.name, loop_variable(axis.name)} & known
    }
    widest = max(widths, key=lambda x: widths[x], default="")
    for width in WIDTHS:
        if width < widths.get(widest, 0):
            yield dataclasses.replace(given, tile={**(given.tile or {}), widest: width})
