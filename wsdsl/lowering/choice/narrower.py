"""Other choices of tiles, where ptxas has too few registers for the first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from wsdsl.ir.op import Kernel
from wsdsl.lowering.axes import axes_of, loop_variable
from wsdsl.lowering.choice.fixed_tiles import with_fixed_tiles
from wsdsl.lowering.footprint import accumulator_registers, promoted_registers
from wsdsl.schedule import Schedule

FEWER = 0.92
"""Of the registers a thread that did not suffice for sums."""
MOST_TRIES = 3
"""Each takes ptxas half a second, or five where it spills much."""
WIDTHS = (192, 128, 64, 32)


def fewer_sums(kernel: Kernel, options: Iterable[Schedule], chosen: Schedule) -> Iterator[Schedule]:
    """Of the ways that are left open, best first, those whose threads hold fewer and fewer sums
    than under `chosen`.
    """
    least, tries = FEWER * _sums(kernel, chosen), MOST_TRIES
    for option in options:
        own = _sums(kernel, option)
        if tries and 0 < own <= least:
            least, tries = FEWER * own, tries - 1
            yield option


def _sums(kernel: Kernel, schedule: Schedule) -> int:
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
