"""How many elements of fp8 the tensor cores sum before ordinary instructions go on.

They keep about 14 bits of a sum, and drop the rest: over thousands of positive elements a tenth of
it gets lost. So a product of one tile of the contraction is added to f32 registers, or each line of
it (`promote_parts`).
"""

from __future__ import annotations

from collections.abc import Mapping

from wsdsl.diagnostics import Finding
from wsdsl.ir.op import Kernel
from wsdsl.ir.tile_ops import Contract
from wsdsl.ir.types import Tile
from wsdsl.ir.wgmma import is_fp8
from wsdsl.lowering.axes import axes_of, loop_variable
from wsdsl.lowering.footprint import axis_sizes, row_blocks
from wsdsl.schedule import Schedule

PRECISE_EVERY = 128
LINE = 128
"""Elements of fp8 in a line of SMEM."""
FAST = "0 leaves the sum to the tensor cores: faster, and wrong by up to 20 % for positive data"


def multiplies_fp8(op: Contract) -> bool:
    return isinstance(op.a.type, Tile) and is_fp8(op.a.type.dtype)


def num_parts(op: Contract, tile: Mapping[str, int]) -> int:
    """Of a product that is read at once: how often its sum is promoted, if that is left open.
    `tile`: elements along every axis.
    """
    assert isinstance(op.a.type, Tile) and isinstance(op.b.type, Tile)
    depth = max(tile[x] for x in op.a.type.axes if x in op.b.type.axes)
    return max(1, depth // PRECISE_EVERY) if multiplies_fp8(op) else 1


def promotes(schedule: Schedule | None) -> bool:
    return schedule is None or schedule.precise_every != 0


def choose_precision(kernel: Kernel, chosen: Schedule) -> tuple[int | None, list[Finding]]:
    """`Schedule.precise_every` where the tiles are chosen, and what speaks against a given one."""
    given, sizes, axes = chosen.precise_every, axis_sizes(kernel, chosen), axes_of(kernel)
    depths: dict[str, int] = {}
    for op in kernel.ops:
        if isinstance(op, Contract) and multiplies_fp8(op):
            assert isinstance(op.a.type, Tile) and isinstance(op.b.type, Tile)
            depths |= {x: sizes[x] for x in op.a.type.axes if x in op.b.type.axes}
    if not depths:
        what = "Schedule.precise_every is for products of fp8, and this kernel has none"
        return given, [Finding(what, kernel.loc, "leave it out")] if given is not None else []
    deepest = max(depths.values())
    every = min(PRECISE_EVERY, deepest) if given is None else given
    findings: list[Finding] = []
    for name, depth in depths.items():
        what = f"`{loop_variable(axes[name].name)}` is summed in tiles of {depth}"
        if every and depth > every and (every % LINE or depth % every):
            hint = f"choose a tile of {every}, or precise_every={depth}; {FAST}"
            what += f", and promoted to f32 after each of them, not every {every}"
            findings.append(Finding(what, kernel.loc, hint))
        elif every and depth > every and row_blocks(kernel, chosen) > 1:
            hint = f"choose a tile of {every}, or more consumers; {FAST}"
            what += f" by consumers of {row_blocks(kernel, chosen)} blocks of 64 rows"
            what += f", and promoted to f32 after each of them, not every {every}"
            findings.append(Finding(what, kernel.loc, hint))
    if every > deepest:
        findings.append(
            Finding(
                f"Schedule.precise_every={every} is more than a tile of the contraction, {deepest},"
                " and sums are promoted to f32 after each tile",
                kernel.loc,
                f"choose precise_every={deepest}, or a tile of {every}; {FAST}",
            )
        )
    return every, findings
