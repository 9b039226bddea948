"""Choose the tile sizes that follow from the kernel: from its source, and along K.

In `tiles(N, by=128)` blocks are part of a kernel's meaning, and a loop whose body reduces all of a
dimension has one tile of it.

K is loaded in SMEM rows of 128 bytes: one row is the unit of loads and MMAs. Two are better where
they wait too often:

- thin matmuls are memory-bound, and have more bandwidth where one load has more of a row;
- narrow tiles are complete before the next stage is full;
- where fp8 accumulators are promoted, the tensor cores run the second row's MMAs during the first
  row's promotion (`schedule_products`), if K is long enough to fill the stages.
"""

import dataclasses

from wsdsl.diagnostics import Finding
from wsdsl.ir.hardware.tma_box import TMA_ALIGN
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import ForTiles, Load
from wsdsl.ir.types import THREADS, Sizes
from wsdsl.lowering import footprint
from wsdsl.lowering.axes import axes_of, loop_variable, whole_axes
from wsdsl.lowering.check_widths import narrowest
from wsdsl.lowering.cooperation import cluster_along
from wsdsl.lowering.cost_model.workload import Work, scales_products
from wsdsl.lowering.held_rows import held_axes
from wsdsl.lowering.precision import fp8_axes, promotes, why_not_in_parts
from wsdsl.lowering.smem_allocations import fits_smem
from wsdsl.lowering.spread_rows import columns_of_each, fewest_ctas, spread, spread_axes
from wsdsl.schedule import PRECISE_EVERY, Schedule, changed

LINES = 2
MOST = 256
"""Elements of K of a tile, also where `mma_promotion_interval` is given."""
FEWEST_TILES = 4
"""Along K; if it is shorter, a tile is one SMEM row."""
NARROW_SIDES = 64 + 48
"""Rows and columns of a narrow tile, together."""
MOST_IN_PARTS = 64
"""Most accumulator registers per thread, where each SMEM row has separate accumulators."""
SLOTS, LONG_SUM, SLOTS_OF_LONG = 4, 48, 3
"""Stages that are needed for promotion; the last is for K of `LONG_SUM` tiles or more."""


BLOCK_ROWS, REGISTER_BITS = 64, 32
"""Of a product of a warpgroup, and of a register of a thread."""
MOST_REGISTERS = {1: 232, 2: 232, 3: 160, 4: 112}
"""Of a thread, by consumers."""
BESIDE_DECODING = 44
"""Registers in addition to accumulators, operands and loads: of lossless weights four consumers
spill 4 bytes with 32 accumulators, 32 registers of operands and 17 of loads."""


def contracted(kernel: Kernel, given: Schedule, work: Work, lines: int = 1) -> dict[str, int]:
    """Choose the tiles along K that the schedule does not give."""
    tile, depths, known = dict[str, int](), footprint.depth_steps(kernel), {*(given.tile or ())}
    several = work.cut is not None and not scales_products(kernel)
    for name, axis in axes_of(kernel).items():
        variable = loop_variable(name)
        if not axis.role and name not in whole_axes(kernel) and not {name, variable} & known:
            line = depths[name][1] if name in depths else 64
            long = work.size(axis.dim) >= FEWEST_TILES * lines * line
            size = line * lines if several and long and name in depths else line
            if name in fp8_axes(kernel):
                size = max(size, min(MOST, given.mma_promotion_interval or 0))
            tile[variable] = min(tile.get(variable, size), size)
    return tile


def with_lines(kernel: Kernel, work: Work, option: Schedule, tile: Sizes) -> Schedule:
    """The option by `tile`, which takes several lines, where that is better than by one."""
    sizes = footprint.axis_sizes(kernel, narrowest(kernel, option))
    promoted = footprint.promoted_registers(kernel, option)
    narrow = work.thin or sum([sizes[a] for a, role in work.roles.items() if role]) <= NARROW_SIDES
    decodes = bool(work.decoding)
    if promoted > MOST_IN_PARTS or not (narrow or promoted or decodes):
        return option
    deep = changed(option, tile=tile)
    if decodes and not _holds_operands(kernel, work, deep):
        return option
    every = (option.mma_promotion_interval or PRECISE_EVERY) if promotes(option) else 0
    if every and why_not_in_parts(kernel, deep, every) is not None:
        return option
    steps = work.trips(work.cut, footprint.axis_sizes(kernel, deep)) if work.cut else 0
    slots = SLOTS_OF_LONG if narrow or decodes else slots_of(steps)
    return deep if has_room(kernel, deep, slots) else option


def _holds_operands(kernel: Kernel, work: Work, deep: Schedule) -> bool:
    """Whether consumers have registers for the operands that they compute of so many lines, and for
    what they load by themselves for the next ones.
    """
    sizes = footprint.axis_sizes(kernel, deep)
    summed = max((sizes[a] for p in work.products for a in p.op.summed), default=0)
    bits = max(p.bits for p in work.products) + work.held_bits
    held = BLOCK_ROWS * summed / THREADS * bits / REGISTER_BITS
    most = MOST_REGISTERS.get(deep.consumers or 1, MOST_REGISTERS[2])
    return footprint.register_demand(kernel, deep) + held + BESIDE_DECODING <= most


def slots_of(steps: int) -> int:
    """Return the stages that a contraction of `steps` tiles needs, each promoted in parts."""
    return SLOTS_OF_LONG if steps >= LONG_SUM else SLOTS


def has_room(kernel: Kernel, deep: Schedule, slots: int) -> bool:
    """Whether SMEM has room for `slots` stages, or for `deep.stages` if that is more."""
    return fits_smem(kernel, deep, max(slots, deep.stages or 0), buffers=1)


def with_fixed_tiles(kernel: Kernel, given: Schedule) -> tuple[Schedule, list[Finding]]:
    """Add the source's tile sizes to the schedule; findings where the two contradict each other."""
    tile, findings = dict(given.tile or {}), list[Finding]()
    known = dict(kernel.sizes)
    for op in kernel.of(ForTiles):
        name, size = op.index.as_axis.name, op.index.as_axis.size
        least, told = size, f"the source has tiles of {size}"
        variable = loop_variable(name)
        own = tile.get(name, tile.get(variable, known.get(op.dim, 1)))
        fits = own * cluster_along(given, name) >= known.get(op.dim, 1)
        if op.whole and fits and name in held_axes(kernel):
            continue
        if op.whole:
            whole, ctas = known.get(op.dim, 1), 1
            told = f"the source reduces all {whole} of `{op.dim}` in one tile"
            if name in spread_axes(kernel):
                ctas = fewest_ctas(whole, own)
                given = spread(given, name, ctas) if ctas > 1 and not given.cluster else given
                ctas = cluster_along(given, name)
                told += f" of {ctas} CTAs" if ctas > 1 else ""
            least, size = -(-whole // ctas), columns_of_each(whole, ctas)
            lines = (v for v in kernel.of(Load) if v.last and v.last.name == name)
            step = max((v.dtype.count(TMA_ALIGN) for v in lines if v.dtype.bits < 8), default=1)
            size = -(-size // step) * step
        elif not size:
            continue
        asked = tile.get(name, tile.get(variable, size))
        if asked < least or (asked > least and not op.whole):
            told = f"WS0429 Schedule.tile has {variable}={asked}; {told}"
            findings.append(Finding(told, op.loc, f"leave {variable} out of Schedule.tile"))
        key = variable if [*map(loop_variable, axes_of(kernel))].count(variable) == 1 else name
        tile[key] = max(asked, size) if op.whole else size
    return (dataclasses.replace(given, tile=tile) if tile else given), findings
