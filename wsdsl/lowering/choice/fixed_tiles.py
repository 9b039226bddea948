"""Tile sizes that follow from the kernel itself: in `tiles(N, by=128)` blocks are part of its
meaning, and a loop whose body reduces all of a dimension has one tile of it.
"""

from __future__ import annotations

import dataclasses

from wsdsl.diagnostics import Finding
from wsdsl.ir.op import Kernel
from wsdsl.ir.tile_ops import ForTiles
from wsdsl.lowering.axes import loop_variable
from wsdsl.schedule import Schedule

WHOLE_STEP = 16
"""A multiple of what the tensor cores take of an axis, in columns or contracted."""


def with_fixed_tiles(kernel: Kernel, given: Schedule) -> tuple[Schedule, list[Finding]]:
    """The schedule with the kernel's own tile sizes, and where the two contradict each other."""
    tile, findings = dict(given.tile or {}), list[Finding]()
    known = dict(kernel.sizes)
    for op in kernel.of(ForTiles):
        name, size = op.index.as_axis.name, op.index.as_axis.size
        least, told = size, f"the kernel walks it by {size}"
        if op.whole:
            least = known.get(op.dim, 1)
            size = -(-max(1, least) // WHOLE_STEP) * WHOLE_STEP
            told = f"and the kernel reduces all {least} of `{op.dim}` in one tile"
        elif not size:
            continue
        asked = tile.get(name, tile.get(loop_variable(name), size))
        if asked < least or (asked > least and not op.whole):
            told = f"Schedule.tile gives `{name}` {asked}, {told}"
            findings.append(Finding(told, op.loc, "leave it out of the schedule"))
        tile[name] = max(asked, size) if op.whole else size
    return (dataclasses.replace(given, tile=tile) if tile else given), findings
