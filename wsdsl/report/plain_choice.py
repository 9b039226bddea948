"""What limits a kernel without products, by the model, and by how much memory is missed."""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.diagnostics import counted
from wsdsl.lowering.cooperation import cluster_size
from wsdsl.lowering.model.plain import ADDED, COUNTED, INSTRUCTIONS, L2, LATENCY, MEMORY, PlainCost
from wsdsl.schedule import Schedule

LEAST = 0.05
"""Of the time, that is worth telling."""
MEANING = {
    MEMORY: "memory",
    L2: "L2, by which bytes that several CTAs want go to each of them",
    INSTRUCTIONS: "instructions",
    ADDED: "L2, which adds to a line one element after the other",
    COUNTED: "additions to counters in SMEM",
    LATENCY: "latency: while CTAs wait for memory and for each other there are no others to run",
}


def plain_reasons(cost: PlainCost, schedule: Schedule) -> Iterator[str]:
    asked = cost.tile
    tiles, size = counted(asked.tiles, "tile"), cluster_size(schedule)
    each = f"each of one of the {size} CTAs of a cluster" if size > 1 else "each of one CTA"
    yield (
        f"  {tiles}, {each}; {counted(cost.ctas_per_sm, 'CTA')} on each of "
        f"{asked.target.num_sms} SMs at the same time"
    )
    cycles = cost.units[MEMORY], cost.cycles
    memory, whole = (number / asked.clock / 1000 for number in cycles)
    if not memory:
        yield f"  nothing is read or written; predicted {_time(whole)}"
        return
    more = f"{100 * (whole / memory - 1):.0f} % more"
    beside = f"{more} than the {_time(memory)} that memory takes by itself"
    yield f"  limited by {MEANING[cost.limit]}; predicted {_time(whole)}, {beside}"
    moved = (
        f"{_bytes(cost.read_bytes)} are read from memory and {_bytes(cost.written_bytes)} written"
    )
    rate = (cost.read_bytes + cost.written_bytes) / memory / 1e6
    yield f"  {moved}, at {rate:.2f} TB/s"
    shares = {name: cycles / cost.cycles for name, cycles in cost.units.items()}
    shares = {n: s for n, s in shares.items() if n != cost.limit and s > LEAST}
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    others = ", ".join(f"{name} {100 * share:.0f} %" for name, share in ordered)
    begin = (asked.start + cost.first) / asked.clock / 1000
    beside = f"meanwhile {others} of that time" if others else "nothing else counts"
    yield f"  {beside}; {_time(begin)} to begin and to end"
    if cost.is_held:
        yield "  rows are held in registers, so that each is read once"
    elif (schedule.stages or 1) > 1:
        yield f"  threads load {schedule.stages} tiles at a time, one of them ahead"


def _time(microseconds: float) -> str:
    return f"{microseconds:.{1 if microseconds < 100 else 0}f} µs"


def _bytes(number: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f} bytes"
