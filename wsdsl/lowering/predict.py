"""How long a schedule takes, as far as it can be told from waves, tiles and bytes.

The tensor cores are busy for as long as the products take, unless L2 can not bring the operands in
that time (the two meet softly). Cooperating consumers write a tile's results while the tensor cores
wait; those who take turns write beside the other's products, but for the last tile. All SMs take
the same number of tiles, the last wave counts like a full one; and no kernel is quicker than its
tensors are read and written once.

The constants are fitted to bf16 products of 19 shapes by 22 tiles on an H200
(`python -m benchmarks.gemm`): the error is 3 %, and the choice by it within 1 % of the best.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wsdsl.lowering.workload import Work, Workload
from wsdsl.schedule import Schedule

NUM_SMS = 132
L2_BYTES = 94.0
"""Bytes a cycle and SM that operands can come at."""
MEMORY_BYTES = 3770.0
"""Bytes a cycle that the card's memory reads or writes."""
SOFTNESS = 4.2
STORE_CYCLES = 12 / 128
"""Cycles for an element of the results, written by one warpgroup of those that share a tile."""
TURN_CYCLES = 440.0
START_CYCLES = 7000.0


@dataclass(frozen=True)
class Prediction:
    """`cycles` in all, and what they are made of."""

    cycles: float
    waves: int
    tile: Workload
    mainloop: float
    epilogue: float

    @property
    def busy(self) -> float:
        """The share of the SMs that the waves fill."""
        return self.tile.tiles / (self.waves * NUM_SMS)


def predict(work: Work, schedule: Schedule, tile: Mapping[str, int]) -> Prediction:
    """`tile`: elements of a tile along every axis under the schedule."""
    asked = work.under(tile)
    cluster = 1
    for num in (schedule.cluster or {}).values():
        cluster *= num
    waves = -(-asked.tiles // (NUM_SMS // cluster * cluster))
    loading = asked.operand_bytes / L2_BYTES
    mainloop = (asked.product_cycles**SOFTNESS + loading**SOFTNESS) ** (1 / SOFTNESS)
    epilogue = asked.stored_elements * STORE_CYCLES
    if schedule.mode == "pingpong" and waves > 1:
        cycles = waves * (mainloop + TURN_CYCLES) + epilogue
    else:
        cycles = waves * (mainloop + epilogue)
    cycles += START_CYCLES
    memory = asked.tensor_bytes / MEMORY_BYTES
    cycles = (cycles**8 + memory**8) ** (1 / 8)
    return Prediction(cycles, waves, asked, mainloop, epilogue)
