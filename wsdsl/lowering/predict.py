"""How long a schedule takes, as far as it can be told from waves, tiles and bytes.

The tensor cores are busy for as long as the products take, unless L2 can not bring the operands in
that time; and moving them costs power, so that the clock is lower the more there is to move.
Cooperating consumers write a tile's results while the tensor cores wait; those who take turns write
beside the other's products, but for the last tile. All SMs take the same number of tiles: the last
wave counts like a full one. And no kernel is quicker than its tensors are read and written once.

The constants are fitted to bf16 products of 18 shapes by 20 tiles on an H200, to the mean of short
bursts and sustained runs: the error is 4 %, and what is chosen by it is within 1 % of the best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from wsdsl.lowering.workload import Work, Workload
from wsdsl.schedule import Schedule

NUM_SMS = 132
L2_BYTES = 82.0
"""Bytes a cycle and SM that operands can come at."""
POWER = 0.00225
"""Slower by this much for each byte a cycle and SM."""
MEMORY_BYTES = 2950.0
"""Bytes a cycle that the card's memory reads or writes."""
IMBALANCE = 0.6
"""Of the memory's bandwidth, SMs without a tile leave some to the others: with a share of `s` busy
these get `s` to this power (1: only their own; 0: all of it).
"""
STORE_CYCLES = 14.4 / 128
"""Cycles for an element of the results."""
TURN_CYCLES = 620.0
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
    cluster = math.prod((schedule.cluster or {}).values())
    waves = -(-asked.tiles // (NUM_SMS // cluster * cluster))
    loading = asked.operand_bytes / L2_BYTES
    power = 1 + POWER * min(asked.bytes_per_cycle, L2_BYTES)
    mainloop = _larger(asked.product_cycles, loading, 12) * power
    epilogue = asked.stored_elements * STORE_CYCLES
    if schedule.mode == "pingpong" and waves > 1:
        cycles = waves * (mainloop + TURN_CYCLES) + epilogue
    else:
        cycles = waves * (mainloop + epilogue)
    # SMs that have nothing left to do leave the others more of the memory, but not all of it.
    idle = waves * NUM_SMS / max(1, asked.tiles)
    memory = asked.tensor_bytes / MEMORY_BYTES * idle**IMBALANCE
    return Prediction(_larger(cycles + START_CYCLES, memory, 8), waves, asked, mainloop, epilogue)


def _larger(a: float, b: float, softness: float) -> float:
    """The larger of two, and a little more where they are close."""
    top = max(a, b, 1.0)
    return top * ((a / top) ** softness + (b / top) ** softness) ** (1 / softness)
