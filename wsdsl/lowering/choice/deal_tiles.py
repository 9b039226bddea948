"""Whether the hardware deals out tiles as SMs get free (`scheduler="grid"`).

Where memory is the limit some SMs get more of it than others, and with few rows there is little
that a persistent CTA does for its next tile ahead: 16 x 28672 x 8192 by 224 tiles of 128 x 16 takes
111.5 us by a grid, and 116 to 120 by CTAs that have their own (H200).
"""

from __future__ import annotations

import dataclasses

from wsdsl.lowering.model.predict import Prediction
from wsdsl.schedule import Schedule


def with_dealt_tiles(schedule: Schedule, own: Prediction) -> Schedule:
    """`schedule`: one whose scheduler was left open, and is persistent."""
    few = own.tile.few_columns and schedule.mode == "cooperative"
    if few and own.memory_bound and own.work.turns > 1:
        return dataclasses.replace(schedule, scheduler="grid")
    return schedule
