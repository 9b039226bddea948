"""Tile sizes that follow from the kernel itself: in `tiles(N, by=128)` blocks are part of its
meaning, and a loop whose body reduces all of a dimension has one tile of it.
"""

from __future__ import annotations

import dataclasses

from wsdsl.diagnostics import Finding
from wsdsl.ir.op import Kernel
from wsdsl.ir.tile_ops import ForTiles
from wsdsl.ir.types import Axis
from wsdsl.lowering.axes import loop_variable
from wsdsl.schedule import Schedule

WHOLE_STEP = 16
"""A multiple of what the tensor cores take of an axis, in columns or contracted."""


def with_fixed_tiles(kernel: Kernel, given: Schedule) -> tuple[Schedule, list[Finding]]:
    """The schedule with the kernel's own tile sizes, and where the two contradict each other."""
    tile, findings = dict(given.tile or {}), list[Finding]()
    known = dict(kernel.sizes)
    for op in kernel.ops:
        if not isinstance(op, ForTiles) or not isinstance(op.index.type, Axis):
            continue
        name, size = op.index.type.name, op.index.type.size
        if not size and not op.whole:
            continue
        if op.whole:
            least = known.get(op.index.type.dim, 1)
            size = -(-max(1, least) // WHOLE_STEP) * WHOLE_STEP
            asked = tile.get(name, tile.get(loop_variable(name), size))
            if asked < least:
                findings.append(
                    Finding(
                        f"Schedule.tile gives `{name}` {asked}, and the kernel reduces all "
                        f"{least} of `{op.index.type.dim}` in one tile",
                        op.loc,
                        "leave it out of the schedule",
                    )
                )
            tile[name] = max(asked, size)
            continue
        asked = tile.get(name, tile.get(loop_variable(name), size))
        if asked != size:
            findings.append(
                Finding(
                    f"Schedule.tile gives `{name}` {asked}, the kernel walks it by {size}",
                    op.loc,
                    "leave it out of the schedule",
                )
            )
        tile[name] = size
    return (dataclasses.replace(given, tile=tile) if tile else given), findings
