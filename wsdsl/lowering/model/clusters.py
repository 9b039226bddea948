"""By how much quicker operands come to the CTAs of a cluster.

What several CTAs of a GPC want at the same time crosses to it once. Which CTA goes to which GPC is
up to the card, but those of a cluster lie in one; so clusters of neighbours have their operands
sooner, without a byte that one CTA loads for another, while all tiles run at the same time. With
multicast each CTA asks for a part of what they have in common.
"""

from __future__ import annotations

from functools import lru_cache

from wsdsl.lowering.cooperation import cluster_size
from wsdsl.lowering.model.steps import Workload
from wsdsl.rates import Rates
from wsdsl.schedule import Schedule


def gain_of(asked: Workload, schedule: Schedule, *, at_once: bool) -> float:
    """Beside CTAs of their own in steady state; `at_once`: all tiles run at the same time."""
    rates, size = asked.rates, cluster_size(schedule)
    if size == 1:
        return 1.0
    if schedule.multicast is not False:
        by_size = rates.l2_multicast_2_bytes if size == 2 else rates.l2_multicast_4_bytes
        return by_size / rates.l2_bytes
    if not at_once:
        return 1.0
    by_size = rates.l2_cluster_2_bytes if size == 2 else rates.l2_cluster_4_bytes
    return by_size / rates.l2_bytes


@lru_cache(maxsize=64)
def best_gain(rates: Rates) -> float:
    """Of all clusters."""
    plain = rates.l2_cluster_2_bytes, rates.l2_cluster_4_bytes
    return max(*plain, rates.l2_multicast_2_bytes, rates.l2_multicast_4_bytes) / rates.l2_bytes
