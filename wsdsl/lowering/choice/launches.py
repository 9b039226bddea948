"""Whether the hardware deals out tiles as SMs get free (`scheduler="grid"`), and whether the next
kernel is let start before this one is over (`Schedule.overlap`).

Where memory is the limit some SMs get more of it than others, and with few rows there is little
that a persistent CTA does for its next tile ahead. With more rows, and short sums, there is, and a
CTA takes as long to begin and end as a kernel.

The next kernel's start hides how a kernel begins. But where memory is the limit and there are fewer
tiles than SMs, loads then take longer, the more so the more SMs idle: CTAs of the next kernel take
SMs in the order in which they get free, so that some which share a way to memory are all busy.
Where those of both kernels find an SM at once, nothing is lost. Kernels that compute operands ask
L2 for the first ones meanwhile (`early_boxes.py`), and gain more.
"""

from __future__ import annotations

import dataclasses

from wsdsl.lowering.cooperation import cluster_size
from wsdsl.lowering.model.predict import Prediction
from wsdsl.schedule import Schedule

CROWDED = 0.4
"""Longer by this much, for the share of SMs that have no tile, while the next kernel's CTAs are let
start beside a kernel that memory limits: loads then wait for each other."""
CROWDED_DECODING = 0.12
"""The same of kernels that compute operands: a CTA's slots hold less of what memory brings
(`UNDER_WAY` in ring_depth.py), and L2 is asked for the first of it before. Lossless weights by 64
rows on 112 of 132 SMs: 2 us of 125, and 0.3 of 34 (an H100)."""
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


def with_overlap(schedule: Schedule, own: Prediction) -> Schedule:
    """Nothing is changed where the next kernel may load early (`constant`): that is worth more."""
    if schedule.overlap is not None or schedule.constant:
        return schedule
    size = cluster_size(schedule)
    crowded = 2 * own.work.workers > own.tile.target.cluster_room(size)
    one_wave = own.memory_bound and own.work.iterations == 1 and not own.work.cut and crowded
    decodes, rates = any(step.decodes for step in own.tile.steps), own.tile.rates
    crowding = CROWDED_DECODING if decodes else CROWDED
    lost = crowding * (1 - own.busy) * own.microseconds
    hidden = rates.kernel_ns - rates.dependent_kernel_ns
    # What L2 is asked for early is there when loads begin.
    hidden += rates.dram_loaded_ns if decodes else 0.0
    if one_wave and lost > hidden / 1000:
        return dataclasses.replace(schedule, overlap=False)
    return schedule
