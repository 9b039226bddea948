"""How long a schedule takes, as far as it can be told from waves, tiles and bytes.

The tensor cores are busy for as long as the products take, unless L2 can not bring the operands in
that time; and moving them costs power, so that the clock is lower the more there is to move.
Cooperating consumers write a tile's results while the tensor cores wait; those who take turns write
beside the other's products, but for the last tile. All SMs take the same number of tiles: the last
wave counts like a full one. And no kernel is quicker than its tensors are read and written once.

Where tiles are cut, what counts is the worker that has most steps of the contraction; the sums that
are handed on come on top (`predict_handing`).

The constants here are fitted to bf16 products of 18 shapes by 20 tiles on an H200, to the mean of
short bursts and sustained runs: the error is 4 %, and what is chosen is within 1 % of the best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from wsdsl.ir.tile_scheduler import tile_scheduler
from wsdsl.lowering.busiest import Busiest, busiest
from wsdsl.lowering.predict_handing import handing_cycles, least_handing, results_share
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
CLOCK = 1.5
"""Cycles a nanosecond under such loads, on the mean of the same measurements."""
L2_HOLDS = 40e6
"""Bytes of tensors that stay in L2 (of 50 MB)."""
LOST_REUSE = 0.2
"""Slower by this much are steps of runs longer than a tile where L2 does not hold the tensors:
workers stand at different places of the contraction, and share nothing.
"""


@dataclass(frozen=True)
class Prediction:
    """`cycles` in all, and what they are made of: those of a whole tile's products and results, and
    of handing on sums.
    """

    cycles: float
    tile: Workload
    work: Busiest
    mainloop: float
    epilogue: float
    handing: float = 0.0

    @property
    def waves(self) -> int:
        """How many tiles' time the busiest SM has work for."""
        return -(-self.work.steps // (self.tile.depth if self.work.cut else 1))

    @property
    def busy(self) -> float:
        """The share of the SMs' steps that are not idle."""
        depth = self.tile.depth if self.work.cut else 1
        return self.tile.tiles * depth / (self.work.steps * NUM_SMS)

    @property
    def microseconds(self) -> float:
        return self.cycles / CLOCK / 1000


def predict(work: Work, schedule: Schedule, tile: Mapping[str, int]) -> Prediction:
    """`tile`: elements of a tile along every axis under the schedule."""
    return predicted(work.under(tile), schedule)


def predicted(asked: Workload, schedule: Schedule) -> Prediction:
    cluster = math.prod((schedule.cluster or {}).values())
    scheduler = tile_scheduler(schedule.scheduler or "", schedule.splits or 1)
    depth = max(1, asked.depth) if scheduler.splits_tiles else 1
    work = busiest(scheduler, -(-asked.tiles // cluster), depth, NUM_SMS // cluster)
    loading = asked.operand_bytes / L2_BYTES
    power = 1 + POWER * min(asked.bytes_per_cycle, L2_BYTES)
    mainloop = _larger(asked.product_cycles, loading, 12) * power
    epilogue = asked.stored_elements * STORE_CYCLES
    cycles = work.steps * (mainloop / depth)
    if work.cut_steps > depth and asked.tensor_bytes > L2_HOLDS:
        cycles += LOST_REUSE * work.cut_steps * (mainloop / depth)
    results = epilogue * results_share(asked, schedule)
    if schedule.mode == "pingpong" and work.turns > 1:
        cycles += work.turns * TURN_CYCLES + results
    else:
        cycles += work.finished * results
    # SMs that have nothing left to do leave the others more of the memory, but not all of it.
    idle = work.steps * NUM_SMS / max(1, asked.tiles * depth)
    memory = asked.tensor_bytes / MEMORY_BYTES * idle**IMBALANCE
    handing = handing_cycles(asked, schedule, work)
    cycles = _larger(cycles + START_CYCLES, memory, 8) + handing
    return Prediction(cycles, asked, work, mainloop, epilogue, handing)


def least_cycles(tile: Prediction) -> float:
    """What no way of cutting such tiles can do better than: all SMs busy from the first step to the
    last, and handing on the sums once.
    """
    asked = tile.tile
    steps = tile.mainloop * asked.tiles / NUM_SMS + START_CYCLES
    return max(steps, asked.tensor_bytes / MEMORY_BYTES) + least_handing(asked)


def _larger(a: float, b: float, softness: float) -> float:
    """The larger of two, and a little more where they are close."""
    top = max(a, b, 1.0)
    return top * ((a / top) ** softness + (b / top) ** softness) ** (1 / softness)
