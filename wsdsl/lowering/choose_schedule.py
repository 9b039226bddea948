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
from wsdsl.lowering.fixed_tiles import with_fixed_tiles
from wsdsl.lowering.footprint import (
    accumulator_registers,
    axis_sizes,
    slot_cycles,
    smem_bytes,
)
from wsdsl.schedule import Schedule

NUM_SMS = 132
LOOKAHEAD = 3072
"""Cycles of the tensor cores by which loads run ahead. On an H200 less starves them (128 x 192 with
3 stages: 0.85 of 4), and more costs 1 to 2 % in sustained runs (128 x 256 with 4 stages, not 3).
"""
MAX_STAGES = 8
WGMMA_REGISTERS = 26
WIDTHS = (256, 192, 128, 64)
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
    axes = axes_of(kernel)
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
    consumers = given.consumers or _consumers(kernel, tile)
    for name, axis in axes.items():
        variable = loop_variable(name)
        if name in whole or name in tile or variable in tile:
            continue
        match axis.role:
            case "rows":
                tile[variable] = 64 * consumers
            case "columns":
                widths.append(variable)
            case _:
                tile[variable] = 64
    chosen = dataclasses.replace(
        given,
        tile=tile,
        consumers=consumers,
        mode="cooperative",
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
        chosen = dataclasses.replace(chosen, registers=_registers(consumers))
    _check_fit(kernel, chosen, products)
    return dataclasses.replace(kernel, schedule=chosen)


def _not_lowered(given: Schedule) -> list[Finding]:
    asked = {
        'mode="pingpong"': given.mode == "pingpong",
        "cluster": given.cluster is not None and any(v > 1 for v in given.cluster.values()),
        f'scheduler="{given.scheduler}"': given.scheduler in ("split_k", "stream_k"),
        "splits": given.splits not in (None, 1),
        f'raster="{given.raster}"': given.raster not in (None, "auto"),
        "mma": given.mma is not None,
        "decode": given.decode is not None,
        "precise_every": given.precise_every is not None,
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
        registers = accumulator_registers(kernel, option)
        fits = registers <= MAX_ACCUMULATOR_REGISTERS[chosen.consumers or 1]
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


def _registers(consumers: int) -> dict[str, int]:
    """setmaxnreg conserves the pool: (load + consumers * compute) is what the launch gave out."""
    return dict(load=32, compute=160) if consumers == 3 else dict(load=40, compute=232)


def _check_fit(kernel: Kernel, chosen: Schedule, products: bool) -> None:
    findings: list[Finding] = []
    consumers = chosen.consumers or 1
    for name, size in axis_sizes(kernel, chosen).items():
        axis = axes_of(kernel)[name]
        what = f"tile {loop_variable(name)}={size} (rows of the tensor cores' tile)"
        if axis.role == "rows" and size % (64 * consumers):
            findings.append(Finding(f"{what} is no multiple of 64 x {consumers} consumers"))
        if axis.role == "rows" and size > 256:
            findings.append(Finding(f"{what} is more than 256"))
        what = f"tile {loop_variable(name)}={size}"
        if axis.role == "columns" and (size % 16 or size > 256):
            findings.append(Finding(f"{what} is no multiple of 16 up to 256 (columns)"))
        if not axis.role and (size % 16 or size > 256):
            findings.append(Finding(f"{what} is no multiple of 16 up to 256 (contracted)"))
    if not findings:
        registers = accumulator_registers(kernel, chosen)
        entry = min(65536 // (128 * (consumers + 1)) // 8 * 8, 232)
        if products and registers + WGMMA_REGISTERS > entry:
            findings.append(
                Finding(
                    f"the accumulators take {registers} registers a thread, and {consumers} "
                    f"consumers leave {entry - WGMMA_REGISTERS}",
                    kernel.loc,
                    "make the tile narrower, or use more consumers",
                )
            )
        used = smem_bytes(kernel, chosen, chosen.stages or 1)
        if products and used > SMEM_BYTES:
            findings.append(
                Finding(
                    f"{chosen.stages} stages need {used} bytes of SMEM, a CTA has {SMEM_BYTES}",
                    kernel.loc,
                    "use fewer stages or smaller tiles",
                )
            )
    given = chosen.registers
    if given is not None and products:
        if set(given) != {"load", "compute"}:
            findings.append(
                Finding(
                    f"Schedule.registers names {', '.join(given)}",
                    kernel.loc,
                    "name the roles load and compute",
                )
            )
        else:
            pool = 65536 // (128 * (consumers + 1)) // 8 * 8 * (consumers + 1)
            if given["load"] + consumers * given["compute"] > pool:
                findings.append(
                    Finding(
                        f"registers {given!r} with {consumers} consumers need more than the "
                        f"{pool} a thread slot that the launch gives out",
                        kernel.loc,
                        "for 2 consumers 40 and 232, or 24 and 240",
                    )
                )
    if findings:
        raise ScheduleError(
            [f if f.loc else dataclasses.replace(f, loc=kernel.loc) for f in findings]
        )
