"""Whether the next kernel is let start before this one is over (`Schedule.overlap`).

It hides how a kernel begins. But where memory is the limit and there are fewer tiles than SMs,
loads then take longer, the more so the more SMs idle. Presumably this is since its CTAs take the
SMs in the order in which they get free, so that some which share a way to memory are all busy.
Where all of them find an SM at once, loads do not.
"""

from __future__ import annotations

import dataclasses

from wsdsl.lowering.model.predict import NUM_SMS, Prediction
from wsdsl.schedule import Schedule

HIDDEN_MICROSECONDS = 0.7
"""By how much sooner the next kernel loads: 0.7 us after the last CTA, not 1.4."""
UNEVEN = 0.4
"""Slower by this much of the share of SMs that idle: bf16, 16 x 28672 x 8192 on an H200, by 128
CTAs 113.1 instead of 112.0 us, by 112 122.0 instead of 113.2; 32 x 5120 x 5120 by 80 18.9 instead
of 15.7. But 64 x 4096 x 4096 by 64 takes 11.2 us, and 11.8 without.
"""


def with_overlap(schedule: Schedule, own: Prediction) -> Schedule:
    """Nothing is changed where the next kernel may load early (`constant`): that is worth more."""
    if schedule.overlap is not None or schedule.constant:
        return schedule
    crowded = own.work.workers > NUM_SMS // 2
    one_wave = own.memory_bound and own.work.turns == 1 and not own.work.cut and crowded
    lost = UNEVEN * (1 - own.busy) * own.microseconds
    if one_wave and lost > HIDDEN_MICROSECONDS:
        return dataclasses.replace(schedule, overlap=False)
    return schedule
