"""Why a schedule is chosen for given sizes: what the model predicts of it and of the next best."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from itertools import islice

from wsdsl.ir.op import Kernel
from wsdsl.lowering.choose_schedule import completed, ranked
from wsdsl.lowering.fixed_tiles import with_fixed_tiles
from wsdsl.lowering.footprint import (
    accumulator_registers,
    axis_sizes,
    promoted_registers,
    smem_bytes,
)
from wsdsl.lowering.pipeline import scheduled_tile
from wsdsl.lowering.predict import L2_BYTES, NUM_SMS, Prediction, predict
from wsdsl.lowering.workload import Work
from wsdsl.schedule import Schedule

SHOWN = 4


def explain_choice(kernel: Kernel, given: Schedule | None, sizes: Mapping[str, int]) -> str:
    """`kernel` at the level TILE with the whole schedule that is taken; `given`: what the user said
    of it; `sizes` by dimension.
    """
    chosen = scheduled_tile(kernel)
    schedule = chosen.schedule
    assert schedule is not None
    own = predict(Work(chosen, sizes), schedule, axis_sizes(chosen, schedule))
    told = ", ".join(f"{dim} = {size}" for dim, size in sizes.items()) or "sizes unknown"
    registers = accumulator_registers(chosen, schedule) + promoted_registers(chosen, schedule)
    compute = (schedule.registers or {}).get("compute", 255)
    lines = [f"chosen for {told}: {schedule!r}", *_reasons(own)]
    lines.append(f"  sums take {registers} of {compute} registers a thread")
    lines.append(f"  SMEM {smem_bytes(chosen, schedule, schedule.stages or 1)} bytes")
    given = dataclasses.replace(given or Schedule(), mma=schedule.mma)
    others = list(islice(_behind(chosen, given, sizes, own), SHOWN))
    if others:
        lines.append("the next best:")
    for option, prediction in others:
        behind = prediction.cycles / own.cycles - 1
        lines.append(f"  {_shape(option)}: {100 * behind:+.1f} %, {_waves(prediction)}")
    return "\n".join(lines)


def _behind(
    chosen: Kernel, given: Schedule, sizes: Mapping[str, int], own: Prediction
) -> Iterator[tuple[Schedule, Prediction]]:
    """Others that fit. Quicker ones were tried before, and spilled."""
    assert chosen.schedule is not None
    for option, prediction in ranked(chosen, with_fixed_tiles(chosen, given)[0], sizes):
        same = _choice(option) == _choice(chosen.schedule)
        if prediction.cycles >= own.cycles and not same and not completed(chosen, option)[1]:
            yield option, prediction


def _choice(schedule: Schedule) -> tuple[object, ...]:
    return schedule.mode, schedule.consumers, dict(schedule.tile or {})


def _shape(option: Schedule) -> str:
    tile = " ".join(f"{name}={size}" for name, size in (option.tile or {}).items())
    return f"{option.mode}, {_number(option.consumers or 1, 'consumer')}, {tile}"


def _waves(p: Prediction) -> str:
    tiles, waves = _number(p.tile.tiles, "tile"), _number(p.waves, "wave")
    return f"{tiles} in {waves}, {100 * p.busy:.0f} % of {NUM_SMS} SMs"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _reasons(p: Prediction) -> list[str]:
    per_operation = p.tile.operand_bytes / max(1, p.tile.operations)
    return [
        f"  {_waves(p)}",
        f"  {p.cycles:.3g} cycles: of a tile {p.mainloop:.0f} for products, {p.epilogue:.0f} for "
        "results",
        f"  operands: {p.tile.bytes_per_cycle:.0f} bytes a cycle and SM (L2 has {L2_BYTES:.0f}), "
        f"{1000 * per_operation:.2f} bytes per 1000 operations",
    ]
