"""Fill in what the user left out of the schedule, and refuse what does not fit.

Before: `schedule=Schedule(tile=dict(n=128))`, or none
After: `schedule=Schedule(tile=dict(m=128, n=128, k=64), stages=6, consumers=2, ...)`

What is left open is tried: both modes, tiles of 64 and 128 rows, all widths. Of those that fit, the
one that `predict` gives the fewest cycles is taken.

Why here: needs the axes' roles; everything later reads sizes from the axes and depths from the ops.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from wsdsl.diagnostics import Finding, ScheduleError
from wsdsl.ir.op import Kernel
from wsdsl.ir.target import SMEM_BYTES
from wsdsl.ir.tile_ops import Cast, Contract, ForEach, ForTiles, Map, Store, Whole
from wsdsl.ir.types import Axis
from wsdsl.ir.walk import definers, walk
from wsdsl.lowering.axes import axes_of, loop_variable
from wsdsl.lowering.check_schedule import faults
from wsdsl.lowering.fixed_tiles import with_fixed_tiles
from wsdsl.lowering.footprint import (
    accumulator_registers,
    axis_sizes,
    depth_steps,
    num_sharing,
    promoted_registers,
    slot_cycles,
    smem_bytes,
)
from wsdsl.lowering.nest import output_nest
from wsdsl.lowering.parts import loads_in_parts
from wsdsl.lowering.precision import choose_precision
from wsdsl.lowering.predict import NUM_SMS, Prediction, predict
from wsdsl.lowering.workload import UNKNOWN_SIZE, Work
from wsdsl.schedule import Mode, Schedule

LOOKAHEAD = 3072
"""Cycles of the tensor cores by which loads run ahead. On an H200 less starves them (128 x 192 with
3 stages: 0.85 of 4), and more costs 1 to 2 % in sustained runs (128 x 256 with 4 stages, not 3).
"""
MAX_STAGES = 8
HEAVY = 176
"""Accumulators a thread from which on consumers need what loading can hardly spare."""
HEAVY_PROMOTED = 160
"""The same where sums are promoted: scaled products of 192 columns are 12 to 25 % slower with 232
registers a thread than with 240, though nothing spills."""
MOST_PROMOTED = {1: 192, 2: 192, 3: 128}
"""Registers a thread for sums in the tensor cores and those they are promoted to, by consumers."""
PLAIN_WIDTH = 64
"""Of a kernel without products, which gains nothing by more."""


def choose_schedule(kernel: Kernel, sizes: Mapping[str, int] | None = None) -> Kernel:
    """`sizes` (dimensions at launch), where known, let tiles divide the waves.

    Raises ScheduleError for a choice that is not lowered yet or does not fit the kernel.
    """
    given, findings = with_fixed_tiles(kernel, kernel.schedule or Schedule())
    findings += [*_not_lowered(given), *_unknown_variables(kernel, given)]
    if findings:
        raise ScheduleError(findings)
    for option, _ in ranked(kernel, given, sizes or {}):
        chosen = _completed(kernel, option)
        every, findings = choose_precision(kernel, chosen)
        chosen = dataclasses.replace(chosen, precise_every=every)
        findings += faults(kernel, chosen)
        if not findings:
            return dataclasses.replace(kernel, schedule=chosen)
    raise ScheduleError([f if f.loc else dataclasses.replace(f, loc=kernel.loc) for f in findings])


def ranked(
    kernel: Kernel, given: Schedule, sizes: Mapping[str, int]
) -> list[tuple[Schedule, Prediction]]:
    """Every way to fill in what `given` leaves open, the quickest first; order of tiles, depths and
    registers are not filled in yet.
    """
    options = list(_options(kernel, given, dict(kernel.sizes) | dict(sizes)))
    if len(options) > 1:
        options = [o for o in options if _leaves_room(kernel, o)] or options
        if scales_products(kernel):
            options = [o for o in options if o.consumers == 3] or options
    work = Work(kernel, sizes)
    found = [(o, predict(work, o, axis_sizes(kernel, o))) for o in options]
    return sorted(found, key=lambda pair: pair[1].cycles)


def _not_lowered(given: Schedule) -> list[Finding]:
    asked = {
        f'scheduler="{given.scheduler}"': given.scheduler in ("split_k", "stream_k"),
        "splits": given.splits not in (None, 1),
        "decode": given.decode is not None,
        f'arch="{given.arch}"': given.arch != "sm_90a",
    }
    return [
        Finding(f"Schedule: {name} is not lowered yet", None, "leave it out")
        for name, wanted in asked.items()
        if wanted
    ]


def _unknown_variables(kernel: Kernel, given: Schedule) -> Iterator[Finding]:
    axes, whole = axes_of(kernel), _whole(kernel)
    known = {v for name in axes if name not in whole for v in (name, loop_variable(name))}
    for name in given.tile or {}:
        if name not in known:
            yield Finding(
                f"Schedule.tile names `{name}`, which no loop walks",
                kernel.loc,
                f"the loop variables are {', '.join(sorted(known))}",
            )


def _whole(kernel: Kernel) -> set[str]:
    """Axes that are no loop's: of dimensions taken whole."""
    taken = (op.result.type for op in walk(kernel.body) if isinstance(op, Whole))
    return {kind.name for kind in taken if isinstance(kind, Axis)}


def _options(kernel: Kernel, given: Schedule, sizes: Mapping[str, int]) -> Iterator[Schedule]:
    """Every way to fill in the mode, the number of consumers, and the tiles of what they share; the
    smallest last.
    """
    products = [op for op in walk(kernel.body) if isinstance(op, Contract)]
    tile, rows, columns = _contracted(kernel, given), list[str](), list[str]()
    for name, axis in axes_of(kernel).items():
        variable = loop_variable(name)
        if axis.role and name not in _whole(kernel) and not {name, variable} & {*tile}:
            (rows if axis.role == "rows" else columns).append(variable)
    widths = (range(256, 0, -16) if products else (PLAIN_WIDTH,)) if columns else (0,)
    for mode, consumers in _teams(kernel, given, products, sizes):
        sharing = num_sharing(Schedule(mode=mode, consumers=consumers))
        heights = (128, 64) if mode == "pingpong" and products else (64 * sharing,)
        for height in heights if rows else (0,):
            for width in widths:
                own = dict.fromkeys(rows, height) | dict.fromkeys(columns, width)
                yield dataclasses.replace(given, mode=mode, consumers=consumers, tile=tile | own)


def _leaves_room(kernel: Kernel, option: Schedule) -> bool:
    """Whether the epilogue surely has the registers it needs; a given schedule may try more. One
    warpgroup with a tile of its own can spare most where it only converts the sums, or what it
    reads comes through SMEM.
    """
    accumulators = accumulator_registers(kernel, option)
    if promoted := promoted_registers(kernel, option):
        return accumulators + promoted <= MOST_PROMOTED[option.consumers or 1]
    in_parts = bool(loads_in_parts(kernel, output_nest(kernel.body)[1]))
    if option.mode == "pingpong" and (in_parts or only_converts(kernel)):
        return accumulators <= 192
    return accumulators <= (96 if option.consumers == 3 else 128)


def only_converts(kernel: Kernel) -> bool:
    """Whether all that is stored are sums, perhaps as another type."""
    made = definers(kernel.body)
    for op in walk(kernel.body):
        if isinstance(op, Store):
            value = op.value
            while isinstance(cast := made.get(value), Cast):
                value = cast.x
            if op.accumulate or not isinstance(made.get(value), (ForTiles, ForEach, Contract)):
                return False
    return True


def scales_products(kernel: Kernel) -> bool:
    """Whether products are multiplied before they are summed. (192 x 128 by three consumers is then
    quicker than 128 x 192 by two, on an H200 0.96 against 0.91.)
    """
    products = {op.result for op in walk(kernel.body) if isinstance(op, Contract)}
    return any(
        isinstance(op, Map) and op.fn in ("fma", "mul") and bool(products & {*op.args})
        for op in walk(kernel.body)
    )


def _contracted(kernel: Kernel, given: Schedule) -> dict[str, int]:
    """The given tiles, and those of axes that products sum over: a line of SMEM."""
    tile, depths, whole = dict(given.tile or {}), depth_steps(kernel), _whole(kernel)
    for name, axis in axes_of(kernel).items():
        variable = loop_variable(name)
        if not axis.role and name not in whole and not {name, variable} & {*tile}:
            tile[variable] = depths[name][1] if name in depths else 64
    return tile


def _teams(
    kernel: Kernel, given: Schedule, products: list[Contract], sizes: Mapping[str, int]
) -> Iterator[tuple[Mode, int]]:
    """Modes with numbers of consumers, the usual ones first. One alone is for few rows, or tiles
    so few that smaller ones use more SMs. To take turns pays where there are turns, and consumers
    do nothing beside the products but at the end.
    """
    rows = {name: axis for name, axis in axes_of(kernel).items() if axis.role == "rows"}
    heights = [size for name, size in axis_sizes(kernel, given).items() if size and name in rows]
    less = bool(products) and _tiles_of_128(kernel, sizes) < NUM_SMS
    few = less or (any(0 < sizes.get(axis.dim, 0) <= 64 for axis in rows.values()) and products)
    if given.mode != "pingpong":
        usual = (2, 1) if few or heights else (3, 2) if scales_products(kernel) else (2,)
        numbers = (given.consumers,) if given.consumers else usual
        fitting = [c for c in numbers if all(h % (64 * c) == 0 for h in heights)]
        for consumers in fitting or numbers[-1:]:
            yield "cooperative", consumers
    in_place = bool(products) and all(op.acc is not None for op in products)
    turns = in_place and not less and given.mode is None and given.consumers != 1
    if given.mode == "pingpong" or turns:
        yield "pingpong", given.consumers or 2


def _tiles_of_128(kernel: Kernel, sizes: Mapping[str, int]) -> int:
    """Output tiles of 128 by 128, and one for each index of an outer loop."""
    count = 1
    for loop in output_nest(kernel.body)[0]:
        if isinstance(loop, ForEach):
            count *= sizes.get(loop.dim, UNKNOWN_SIZE)
        elif isinstance(loop.index.type, Axis):
            count *= -(-sizes.get(loop.index.type.dim, UNKNOWN_SIZE) // 128)
    return count


def _completed(kernel: Kernel, option: Schedule) -> Schedule:
    """With the order of tiles, depths and registers."""
    products = any(isinstance(op, Contract) for op in walk(kernel.body))
    order = dict.fromkeys(v for name in axes_of(kernel) for v in (name, loop_variable(name)))
    sized, scheduler = option.tile or {}, option.scheduler
    chosen = dataclasses.replace(
        option,
        tile={v: sized[v] for v in order if v in sized},
        scheduler=scheduler if scheduler in ("grid", "persistent") else "persistent",
        swizzle=option.swizzle or 8,
        raster=None if option.raster == "auto" else option.raster,
    )
    if chosen.stages is None:
        chosen = dataclasses.replace(chosen, stages=_depth(kernel, chosen) if products else 1)
    if chosen.registers is None and products:
        sums, promoted = accumulator_registers(kernel, chosen), promoted_registers(kernel, chosen)
        heavy = sums > HEAVY or (bool(promoted) and sums + promoted > HEAVY_PROMOTED)
        own = _registers(chosen.consumers or 1, heavy)
        chosen = dataclasses.replace(chosen, registers=own)
    return chosen


def _depth(kernel: Kernel, chosen: Schedule) -> int:
    """As deep as loads must run ahead, or as SMEM allows."""
    wanted = -(-LOOKAHEAD // max(1, slot_cycles(kernel, chosen)))
    for stages in range(max(2, min(wanted, MAX_STAGES)), 1, -1):
        if smem_bytes(kernel, chosen, stages) <= SMEM_BYTES:
            return stages
    return 1


def _registers(consumers: int, heavy: bool) -> dict[str, int]:
    """setmaxnreg conserves the pool: (load + consumers * compute) is what the launch gave out."""
    if consumers == 2:
        return dict(load=24, compute=240) if heavy else dict(load=40, compute=232)
    return dict(load=32, compute=160) if consumers == 3 else dict(load=56, compute=232)
