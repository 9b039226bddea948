"""Fraction of the predicted time that each hardware unit is busy; the largest is the bottleneck."""

from collections.abc import Callable, Mapping

from wsdsl.lowering.cooperation import num_cooperating, num_pingpong_consumers
from wsdsl.lowering.cost_model.memory_bound import ADDED, COUNTED, MEMORY
from wsdsl.lowering.cost_model.predict import Prediction
from wsdsl.lowering.cost_model.speeds import issuing, l2_bytes, pace_of, power
from wsdsl.lowering.cost_model.workload import Step
from wsdsl.schedule import Schedule

LATENCY = "latency"
"""Time in which no unit is the limit: threads wait for loads, barriers and each other."""
NAMES = {MEMORY: "DRAM", ADDED: "L2 atomics", COUNTED: "SMEM atomics"}
WORTH_LISTING = 0.05
"""Fraction of the predicted time below which a unit is not listed."""


def unit_fractions(prediction: Prediction, schedule: Schedule) -> Mapping[str, float]:
    """Fraction of the predicted time (0 to 1) per hardware unit, largest first."""
    if plain := prediction.plain:
        found = {NAMES.get(n, n): cycles / plain.cycles for n, cycles in plain.units.items()}
    else:
        found = _of_matmuls(prediction, schedule)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def bottleneck(prediction: Prediction, schedule: Schedule) -> str:
    """Return the unit that limits the predicted time."""
    return next(iter(unit_fractions(prediction, schedule)))


def bottleneck_line(units: Mapping[str, float]) -> str:
    """Describe the bottleneck, and the other units that are busy for a part of the time."""
    (first, most), *others = units.items()
    listed = ", ".join(f"{n} {100 * part:.0f} %" for n, part in others if part > WORTH_LISTING)
    more = f"; other units, of the same time: {listed}" if listed else ""
    return f"bottleneck: {first}, {100 * most:.0f} % of the predicted time{more}"


def _of_matmuls(p: Prediction, schedule: Schedule) -> dict[str, float]:
    tile, rates = p.tile, p.tile.rates
    lanes, pace = issuing(rates, num_cooperating(schedule)), pace_of(tile, p.busy)

    def total(of: Callable[[Step], float]) -> float:
        cycles = sum(step.times * of(step) for step in tile.steps if step.in_loop)
        return p.rounds * cycles * p.stretch / p.cycles

    overlapped = {
        "tensor cores": total(lambda step: step.tensor) * power(rates, tile.bytes_per_cycle) * pace,
        "SMEM reads by MMA": total(lambda step: step.read) / rates.tensor_smem_bytes,
        "L2": total(lambda step: step.loaded) / (l2_bytes(rates, p.busy) * p.gain),
        "instructions": total(lambda step: step.instructions) / lanes * pace,
        "DRAM": p.memory / p.cycles,
    }
    serial = {
        "epilogue": p.work.finished * p.epilogue * p.stretch / p.cycles,
        "split-K fixup": p.handing / p.cycles,
        "launch": tile.start / p.cycles,
    }
    hidden = serial["epilogue"] if num_pingpong_consumers(schedule) > 1 else 0.0
    rest = 1 + hidden - max(overlapped.values()) - sum(serial.values())
    return {**overlapped, **serial, LATENCY: max(0.0, rest)}
