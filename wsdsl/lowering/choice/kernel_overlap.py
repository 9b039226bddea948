"""Whether the next kernel is let start before this one is over (`Schedule.overlap`).

It hides how a kernel begins. But where memory is the limit and there are fewer tiles than SMs,
loads then take longer, the more so the more SMs idle. Presumably this is since its CTAs take the
SMs in the order in which they get free, so that some which share a way to memory are all busy.
Where those of both kernels find an SM at once, loads do not: 64 CTAs, also in pairs, lose 4 to 12 %
where it is off. But clusters of 4 and 8 fit less well: 1 x 1024 x 16384 by 16 of 4 takes 14.3 us
with it, 10.9 without, 64 x 1280 x 16384 by 20 16.2 and 14.2.
"""

from __future__ import annotations

import dataclasses

from wsdsl.lowering.cooperation import cluster_size
from wsdsl.lowering.model.loading import CROWDED, HIDDEN_MICROSECONDS
from wsdsl.lowering.model.predict import Prediction
from wsdsl.schedule import Schedule

HIDDEN_OF_CLUSTERS = 1.0
"""Microseconds; clusters begin later than CTAs of their own. 64 x 768 x 8192 by 24 of 4, where
0.8 are lost, takes 6.3 us without, 6.0 with it; where 1.1 and more are, it gains 1 % at most."""


def with_overlap(schedule: Schedule, own: Prediction) -> Schedule:
    """Nothing is changed where the next kernel may load early (`constant`): that is worth more."""
    if schedule.overlap is not None or schedule.constant:
        return schedule
    size = cluster_size(schedule)
    crowded = 2 * own.work.workers > own.tile.target.cluster_room(size)
    one_wave = own.memory_bound and own.work.iterations == 1 and not own.work.cut and crowded
    lost = CROWDED * (1 - own.busy) * own.microseconds
    if one_wave and lost > (HIDDEN_MICROSECONDS if size == 1 else HIDDEN_OF_CLUSTERS):
        return dataclasses.replace(schedule, overlap=False)
    return schedule
