"""Why a schedule is chosen for given sizes: what the model predicts of it and of the next best."""

from __future__ import annotations

from collections.abc import Mapping

from wsdsl.ir.op import Kernel
from wsdsl.lowering.choose_schedule import ranked
from wsdsl.lowering.footprint import accumulator_registers, promoted_registers, smem_bytes
from wsdsl.lowering.pipeline import scheduled_tile
from wsdsl.lowering.predict import L2_BYTES, NUM_SMS, Prediction
from wsdsl.schedule import Schedule

SHOWN = 5


def explain_choice(kernel: Kernel, sizes: Mapping[str, int]) -> str:
    """`kernel` at the level TILE, with what the user gave of the schedule; `sizes` by dimension."""
    chosen = scheduled_tile(kernel, sizes)
    schedule = chosen.schedule
    assert schedule is not None
    order = ranked(chosen, kernel.schedule or Schedule(), sizes)
    own = next((p for o, p in order if _same(o, schedule)), order[0][1])
    told = ", ".join(f"{dim} = {size}" for dim, size in sizes.items()) or "sizes unknown"
    registers = accumulator_registers(chosen, schedule) + promoted_registers(chosen, schedule)
    compute = (schedule.registers or {}).get("compute", 255)
    lines = [f"chosen for {told}: {schedule!r}", *_reasons(own)]
    lines.append(f"  sums take {registers} of {compute} registers a thread")
    lines.append(f"  SMEM {smem_bytes(chosen, schedule, schedule.stages or 1)} bytes")
    others = [(o, p) for o, p in order if not _same(o, schedule)][: SHOWN - 1]
    if others:
        lines.append("the next best:")
    for option, prediction in others:
        behind = prediction.cycles / own.cycles - 1
        lines.append(f"  {_shape(option)}: {100 * behind:+.1f} %, {_waves(prediction)}")
    return "\n".join(lines)


def _same(a: Schedule, b: Schedule) -> bool:
    return (a.mode, a.consumers) == (b.mode, b.consumers) and dict(a.tile or {}) == dict(
        b.tile or {}
    )


def _shape(option: Schedule) -> str:
    tile = " ".join(f"{name}={size}" for name, size in (option.tile or {}).items())
    return f"{option.mode}, {option.consumers} consumers, {tile}"


def _waves(p: Prediction) -> str:
    return f"{p.tile.tiles} tiles in {p.waves} waves, {100 * p.busy:.0f} % of {NUM_SMS} SMs"


def _reasons(p: Prediction) -> list[str]:
    flop = max(1.0, p.tile.product_cycles) * 8192
    return [
        f"  {_waves(p)}",
        f"  {p.cycles:.3g} cycles: of a tile {p.mainloop:.0f} for products, {p.epilogue:.0f} for "
        "results",
        f"  operands: {p.tile.bytes_per_cycle:.0f} bytes a cycle and SM (L2 has {L2_BYTES:.0f}), "
        f"{1000 * p.tile.operand_bytes / flop:.2f} bytes per 1000 operations",
    ]
