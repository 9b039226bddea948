"""Whether the hardware deals out tiles as SMs get free (`scheduler="grid"`).

Where memory is the limit some SMs get more of it than others, and with few rows there is little
that a persistent CTA does for its next tile ahead. With more rows, and short sums, there is, and a
CTA takes as long to begin and end as a kernel.
"""

from __future__ import annotations

import dataclasses

from wsdsl.lowering.model.predict import Prediction
from wsdsl.schedule import Schedule

LEAST_TURN = 15000.0
"""Cycles of a tile, at the least, for CTAs that have but one: some times what a CTA takes to begin
and end."""


def with_dealt_tiles(schedule: Schedule, own: Prediction) -> Schedule:
    """`schedule`: one whose scheduler was left open, and is persistent."""
    few = own.tile.few_columns and schedule.mode == "cooperative"
    iterations = own.work.iterations
    if few and own.memory_bound and iterations > 1 and own.cycles > LEAST_TURN * iterations:
        return dataclasses.replace(schedule, scheduler="grid")
    return schedule
