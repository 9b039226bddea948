"""What it costs to put the sums of a tile's pieces together, as far as it can be told from bytes
and how many wait for each other.

In a serial reduction a worker writes the sums that it hands on and reads those that it goes on
from. Where the pieces of a tile end at the same time, all that are neither first nor last do so one
after another. In slices, all write at the same time, meet, read a part of everything, and meet
again.

The constants are near what `tools/fit_model.py` finds for 800 schedules of 120 shapes on an H200
(`--suite sweep`): the error among schedules of the same sizes is 4 to 5 %, and what is chosen is
1 % behind the best in the mean. They are of this compiler's stores and loads of partial sums: if
these get quicker, fit again.
"""

from __future__ import annotations

from wsdsl.lowering.cooperation import num_cooperating
from wsdsl.lowering.model.busiest import Busiest
from wsdsl.lowering.model.workload import Workload
from wsdsl.lowering.parallel_reduction import Slicing
from wsdsl.schedule import Schedule

SUM_BYTES = 4
"""Of an element of the sums."""
WRITE_BYTES = 26.0
"""Bytes a cycle and SM at which partial sums are written, to L2."""
READ_BYTES = 39.0
"""The same for reading them."""
HAND_OVER_CYCLES = 1600.0
"""From the last store of one CTA to the first load of another that waited for its flag: a barrier,
a release, an acquire, and the load's latency. In slices once for each consumer: 1024 x 384 x
16384 by 128 x 96 in four takes 25.5 us with one, 27.0 with two.
"""
ALL_OR_NONE_CYCLES = 1000.0
"""In slices, whose CTAs are launched together: they do not start before the kernel in front ends
(128 x 1024 x 8192, 256 x 512 x 4096 and 1024 x 192 x 4096 take 1.1 to 1.5 us longer than by the
rest of this).
"""
PART_CYCLES = 150.0
"""For each slice that all wait for, beyond two: 512 x 512 x 4096 takes 8.4 us in two of 64 x 64,
8.8 in four of 64 x 128.
"""
EXCHANGE_CYCLES = 300.0
"""From the last product of one CTA of a cluster to the whole sums of a slice in another, beside
what is sent ..."""
MORE_CYCLES = 150.0
"""... for each further CTA."""
SEND_BYTES = 14.0
"""Bytes a cycle and SM at which sums are sent to other SMs of the cluster."""
LOAD_CYCLES = 600.0
"""Until what was asked for at once has come from L2."""


def split_k_cycles(asked: Workload, schedule: Schedule, work: Busiest) -> float:
    """Beside the steps and the results."""
    if not work.handed:
        return 0.0
    written, read = sum_cycles(asked)
    if schedule.reduction == "parallel":
        gathered = gather_cycles(asked, schedule, work.parts)
        meeting = num_cooperating(schedule) * HAND_OVER_CYCLES + (work.parts - 2) * PART_CYCLES
        return work.iterations * (written + meeting + gathered) + ALL_OR_NONE_CYCLES
    between = max(0, work.parts - 2)
    if schedule.reduction == "unordered":
        between = min(1, between)
    own = work.handed * written + work.taken * read + HAND_OVER_CYCLES
    return own + between * (written + HAND_OVER_CYCLES + read)


def exchange_cycles(asked: Workload, work: Busiest, sharing: int) -> float:
    """Where the CTAs of a cluster share the contraction, and send each other their sums."""
    if sharing == 1:
        return 0.0
    sent = asked.sums * SUM_BYTES * (sharing - 1) / sharing
    meeting = EXCHANGE_CYCLES + (sharing - 2) * MORE_CYCLES
    return work.iterations * (meeting + sent / SEND_BYTES)


def sum_cycles(asked: Workload) -> tuple[float, float]:
    """To write the sums of a tile, and to read them."""
    moved = asked.sums * SUM_BYTES
    return moved / WRITE_BYTES, moved / READ_BYTES


def gather_cycles(asked: Workload, schedule: Schedule, parts: int) -> float:
    """To read what one CTA finishes of a tile, from all of its pieces."""
    read = results_share(asked, schedule) * parts * sum_cycles(asked)[1]
    slicing = _slicing(asked, schedule)
    return read + -(-parts // slicing.at_once(slicing.width)) * LOAD_CYCLES


def least_split_k_cycles(asked: Workload) -> float:
    """What any way of cutting costs."""
    return HAND_OVER_CYCLES + sum_cycles(asked)[0]


def results_share(asked: Workload, schedule: Schedule) -> float:
    """The largest part of a tile that one CTA finishes."""
    if schedule.reduction != "parallel" or not asked.columns:
        return 1.0
    splits = min(schedule.splits or 1, max(1, asked.depth))
    width = _slicing(asked, schedule).width
    return -(-asked.columns // width // splits) * width / asked.columns


def _slicing(asked: Workload, schedule: Schedule) -> Slicing:
    consumers, splits = num_cooperating(schedule), schedule.splits or 1
    return Slicing(asked.rows, asked.columns, asked.sums, consumers, splits, asked.least_slice)
