"""What it costs to put the sums of a tile's pieces together, as far as it can be told from bytes
and how many wait for each other.

In turns, a worker writes the sums that it hands on and reads those that it goes on from. Where the
pieces of a tile end at the same time, all that are neither first nor last do so one after another.
In slices, all write at the same time, meet, read a part of everything, and meet again.

The constants are fitted by `tools/fit_model.py`.
"""

from __future__ import annotations

from wsdsl.lowering.busiest import Busiest
from wsdsl.lowering.slices import AT_ONCE, slice_width
from wsdsl.lowering.workload import Workload
from wsdsl.schedule import Schedule

SUM_BYTES = 4
"""Of an element of the sums."""
WRITE_BYTES = 40.0
"""Bytes a cycle and SM at which partial sums are written, to L2."""
READ_BYTES = 50.0
"""The same for reading them."""
HAND_OVER_CYCLES = 1200.0
"""From the last store of one CTA to the first load of another that waited for its flag: a barrier,
a release, an acquire, and the load's latency.
"""
LOAD_CYCLES = 800.0
"""Until what was asked for at once has come from L2."""


def handing_cycles(asked: Workload, schedule: Schedule, work: Busiest) -> float:
    """Beside the steps and the results."""
    if not work.handed:
        return 0.0
    written = asked.sums * SUM_BYTES / WRITE_BYTES
    if schedule.reduction == "slices":
        share = results_share(asked, schedule)
        loaded = share * work.parts * asked.sums * SUM_BYTES / READ_BYTES
        waits = -(-work.parts // AT_ONCE) * LOAD_CYCLES
        return work.turns * (written + 2 * HAND_OVER_CYCLES + loaded + waits)
    read = asked.sums * SUM_BYTES / READ_BYTES
    between = max(0, work.parts - 2)
    if schedule.reduction == "unordered":
        between = min(1, between)
    own = work.handed * written + work.taken * read + HAND_OVER_CYCLES
    return own + between * (written + HAND_OVER_CYCLES + read)


def least_handing(asked: Workload) -> float:
    """What any way of cutting costs."""
    return HAND_OVER_CYCLES + asked.sums * SUM_BYTES / WRITE_BYTES


def results_share(asked: Workload, schedule: Schedule) -> float:
    """The largest part of a tile that one CTA finishes."""
    if schedule.reduction != "slices" or not asked.columns:
        return 1.0
    splits = min(schedule.splits or 1, max(1, asked.depth))
    width = slice_width(asked.columns, schedule.splits or 1)
    return -(-asked.columns // width // splits) * width / asked.columns
