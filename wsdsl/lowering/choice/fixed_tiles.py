"""Tile sizes that the kernel itself says: in `tiles(N, by=128)` blocks are part of its meaning."""

from __future__ import annotations

import dataclasses

from wsdsl.diagnostics import Finding
from wsdsl.ir.op import Kernel
from wsdsl.ir.tile_ops import ForTiles
from wsdsl.ir.types import Axis
from wsdsl.lowering.axes import loop_variable
from wsdsl.schedule import Schedule


def with_fixed_tiles(kernel: Kernel, given: Schedule) -> tuple[Schedule, list[Finding]]:
    """The schedule with the kernel's own tile sizes, and where the two contradict each other."""
    tile, findings = dict(given.tile or {}), list[Finding]()
    for op in kernel.ops:
        if not isinstance(op, ForTiles) or not isinstance(op.index.type, Axis):
            continue
        name, size = op.index.type.name, op.index.type.size
        if not size:
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
