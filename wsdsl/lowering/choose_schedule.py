"""Fill in what the user left out of the schedule, and refuse what does not fit.

Before: `schedule=Schedule(tile=dict(n=128))`, or none
After: `schedule=Schedule(tile=dict(m=128, n=128, k=64), stages=6, consumers=2, ...)`

Why here: needs the axes' roles; everything later reads sizes from the axes and depths from the ops.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from wsdsl.diagnostics import Finding, ScheduleError
from wsdsl.ir.op import Kernel
from wsdsl.ir.target import SMEM_BYTES
from wsdsl.ir.tile_ops import Contract, Whole
from wsdsl.ir.types import Axis
from wsdsl.ir.walk import walk
from wsdsl.lowering.axes import axes_of, loop_variable
from wsdsl.lowering.check_schedule import faults
from wsdsl.lowering.fixed_tiles import with_fixed_tiles
from wsdsl.lowering.footprint import (
    accumulator_registers,
    axis_sizes,
    depth_steps,
    promoted_registers,
    slot_cycles,
    smem_bytes,
)
from wsdsl.lowering.precision import choose_precision
from wsdsl.schedule import Schedule

NUM_SMS = 132
LOOKAHEAD = 3072
"""Cycles of the tensor cores by which loads run ahead. On an H200 less starves them (128 x 192 with
3 stages: 0.85 of 4), and more costs 1 to 2 % in sustained runs (128 x 256 with 4 stages, not 3).
"""
MAX_STAGES = 8
WIDTHS = (256, 192, 128, 64)
MOST_LIVE = 208
HEAVY = 176
"""Accumulators a thread from which on consumers need more registers than loading can spare."""
MAX_ACCUMULATOR_REGISTERS = {1: 128, 2: 128, 3: 96}
"""By the number of consumers. ptxas wants about 26 more at entry, where a thread has 65536 over the
number of threads, whatever setmaxnreg gives later; the epilogue works on chunks beside them.
"""


def choose_schedule(kernel: Kernel, sizes: Mapping[str, int] | None = None) -> Kernel:
    """`sizes` (dimensions at launch), where known, let the tile's width divide the waves.

    Raises ScheduleError for a choice that is not lowered yet or does not fit the kernel.
    """
    given, findings = with_fixed_tiles(kernel, kernel.schedule or Schedule())
    findings += _not_lowered(given)
    axes, depths = axes_of(kernel), depth_steps(kernel)
    variables = {loop_variable(name) for name in axes} | set(axes)
    whole = {
        op.result.type.name
        for op in walk(kernel.body)
        if isinstance(op, Whole)
        if isinstance(op.result.type, Axis)
    }
    for name in given.tile or {}:
        if name not in variables - whole:
            known = ", ".join(sorted(variables - whole))
            findings.append(
                Finding(
                    f"Schedule.tile names `{name}`, which no loop walks",
                    kernel.loc,
                    f"the loop variables are {known}",
                )
            )
    if findings:
        raise ScheduleError(findings)
    products = any(isinstance(op, Contract) for op in walk(kernel.body))
    tile = dict(given.tile or {})
    widths: list[str] = []
    pingpong = given.mode == "pingpong"
    consumers = given.consumers or (2 if pingpong else _consumers(kernel, tile))
    for name, axis in axes.items():
        variable = loop_variable(name)
        if name in whole or name in tile or variable in tile:
            continue
        match axis.role:
            case "rows":
                tile[variable] = 128 if pingpong else 64 * consumers
            case "columns":
                widths.append(variable)
            case _:
                tile[variable] = depths[name][1] if name in depths else 64
    chosen = dataclasses.replace(
        given,
        tile=tile,
        consumers=consumers,
        mode=given.mode or "cooperative",
        scheduler=given.scheduler if given.scheduler in ("grid", "persistent") else "persistent",
        swizzle=given.swizzle or 8,
    )
    if widths:
        chosen = _choose_width(kernel, chosen, widths, sizes or {}, products)
    order = dict.fromkeys(v for name in axes for v in (name, loop_variable(name)))
    sized = chosen.tile or {}
    chosen = dataclasses.replace(chosen, tile={v: sized[v] for v in order if v in sized})
    if chosen.stages is None:
        chosen = dataclasses.replace(chosen, stages=_depth(kernel, chosen) if products else 1)
    if chosen.registers is None and products:
        heavy = accumulator_registers(kernel, chosen) > HEAVY
        chosen = dataclasses.replace(chosen, registers=_registers(consumers, heavy))
    every, findings = choose_precision(kernel, chosen)
    chosen = dataclasses.replace(chosen, precise_every=every)
    findings += faults(kernel, chosen)
    if findings:
        raise ScheduleError(
            [f if f.loc else dataclasses.replace(f, loc=kernel.loc) for f in findings]
        )
    return dataclasses.replace(kernel, schedule=chosen)


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


def _consumers(kernel: Kernel, tile: Mapping[str, int]) -> int:
    rows = [
        tile.get(a.name, tile.get(loop_variable(a.name), 128))
        for a in axes_of(kernel).values()
        if a.role == "rows"
    ]
    return 2 if all(size % 128 == 0 for size in rows) else 1


def _choose_width(
    kernel: Kernel, chosen: Schedule, names: list[str], sizes: Mapping[str, int], products: bool
) -> Schedule:
    """The widest tile whose accumulators fit the registers, or the one that divides the waves."""
    options: list[Schedule] = []
    for width in WIDTHS if products else (64,):
        tile = {**(chosen.tile or {}), **dict.fromkeys(names, width)}
        option = dataclasses.replace(chosen, tile=tile)
        accumulators = accumulator_registers(kernel, option)
        fits = accumulators <= MAX_ACCUMULATOR_REGISTERS[chosen.consumers or 1]
        fits = fits and accumulators + promoted_registers(kernel, option) <= MOST_LIVE
        if fits and smem_bytes(kernel, option, chosen.stages or 2) <= SMEM_BYTES:
            options.append(option)
    if not options:
        smallest = {**(chosen.tile or {}), **dict.fromkeys(names, WIDTHS[-1])}
        return dataclasses.replace(chosen, tile=smallest)
    return min(options, key=lambda option: _cost(kernel, option, sizes))


def _cost(kernel: Kernel, option: Schedule, sizes: Mapping[str, int]) -> float:
    """Waves times the time of a tile, in columns; 24 stands for what a tile costs beside them."""
    tiles, width = 1, 0
    for axis in axes_of(kernel).values():
        size = axis_sizes(kernel, option).get(axis.name, 1)
        if axis.role == "columns":
            width = max(width, size)
        if axis.role and axis.dim in sizes:
            tiles *= -(-sizes[axis.dim] // size)
    if not sizes:
        return -width
    return -(-tiles // NUM_SMS) * (width + 24)


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
