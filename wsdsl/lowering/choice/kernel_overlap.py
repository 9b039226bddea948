"""Whether the next kernel is let start before this one is over (`Schedule.overlap`).

It hides how a kernel begins. But where memory is the limit and there are fewer tiles than SMs,
loads then take longer, the more so the more SMs idle. Presumably this is since its CTAs take the
SMs in the order in which they get free, so that some which share a way to memory are all busy.
Where all of them find an SM at once, loads do not.
"""

from __future__ import annotations

import dataclasses

from wsdsl.lowering.model.loading import CROWDED, HIDDEN_MICROSECONDS
from wsdsl.lowering.model.predict import NUM_SMS, Prediction
from wsdsl.schedule import Schedule


def with_overlap(schedule: Schedule, own: Prediction) -> Schedule:
    """Nothing is changed where the next kernel may load early (`constant`): that is worth more."""
    if schedule.overlap is not None or schedule.constant:
        return schedule
    crowded = own.work.workers > NUM_SMS // 2
    one_wave = own.memory_bound and own.work.turns == 1 and not own.work.cut and crowded
    lost = CROWDED * (1 - own.busy) * own.microseconds
    if one_wave and lost > HIDDEN_MICROSECONDS:
        return dataclasses.replace(schedule, overlap=False)
    return schedule
