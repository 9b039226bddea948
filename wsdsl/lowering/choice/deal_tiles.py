"""Whether the hardware deals out tiles as SMs get free (`scheduler="grid"`).

Where memory is the limit some SMs get more of it than others, and with few rows there is little
that a persistent CTA does for its next tile ahead: 16 x 28672 x 8192 by 448 tiles of 64 x 16 takes
110.0 us by a grid, 116.7 by CTAs that have their own. With more rows, and short sums, there is: fp8
64 x 28672 x 4096 by 64 x 112 takes 33.1 us and 31.4 (H200). A CTA takes 1.7 us to begin and end:
100000 x 64 x 64 by 782 tiles of 128 x 64 takes 15.5 us by a grid, 8.2 by CTAs that have their own.
"""

from __future__ import annotations

import dataclasses

from wsdsl.lowering.model.predict import Prediction
from wsdsl.schedule import Schedule

LEAST_TURN = 15000.0
"""Cycles of a tile, at the least, for CTAs that have but one: 16 x 24576 x 1536, of 10 thousand,
takes 21.4 us by a grid, 19.8 by CTAs that have several."""


def with_dealt_tiles(schedule: Schedule, own: Prediction) -> Schedule:
    """`schedule`: one whose scheduler was left open, and is persistent."""
    few = own.tile.few_columns and schedule.mode == "cooperative"
    iterations = own.work.iterations
    if few and own.memory_bound and iterations > 1 and own.cycles > LEAST_TURN * iterations:
        return dataclasses.replace(schedule, scheduler="grid")
    return schedule
