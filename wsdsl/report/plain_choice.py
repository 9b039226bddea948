"""Explain the prediction of a memory-bound (non-GEMM) kernel."""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.diagnostics import counted
from wsdsl.lowering.cooperation import cluster_size
from wsdsl.lowering.model.plain import MEMORY, PlainCost
from wsdsl.schedule import Schedule


def plain_reasons(cost: PlainCost, schedule: Schedule) -> Iterator[str]:
    tile, size, clock = cost.tile, cluster_size(schedule), cost.tile.clock
    each = f", each by a CTA of a cluster of {size}" if size > 1 else ""
    ctas = counted(cost.ctas_per_sm, "CTA")
    yield f"  work: {counted(tile.tiles, 'tile')}{each}; {ctas} per SM on {tile.target.num_sms} SMs"
    if memory := cost.units[MEMORY] / clock / 1000:
        rate = (cost.read_bytes + cost.written_bytes) / memory / 1e6
        part = 100 * cost.units[MEMORY] / cost.cycles
        yield (
            f"  DRAM: {_bytes(cost.read_bytes)} read, {_bytes(cost.written_bytes)} written; "
            f"{memory:.1f} µs at {rate:.2f} TB/s, {part:.0f} % of the predicted time"
        )
    fill = (tile.start + cost.first) / clock / 1000
    yield f"  launch, first loads and last stores: {fill:.1f} µs"
    if cost.is_held:
        yield "  rows stay in registers: each element is loaded once"
    elif (schedule.stages or 1) > 1:
        yield f"  threads load {schedule.stages} tiles at a time, one of them ahead"


def _bytes(number: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f} bytes"
