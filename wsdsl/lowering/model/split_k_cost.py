"""What it costs to put the sums of a tile's pieces together, as far as it can be told from bytes
and how many wait for each other.

In a serial reduction a worker writes the sums that it hands on and reads those that it goes on
from. Where the pieces of a tile end at the same time, all that are neither first nor last do so one
after another. In a parallel one all write at the same time, meet, read a part of everything, and
meet again.
"""

from __future__ import annotations

from wsdsl.lowering.busiest import Busiest
from wsdsl.lowering.cooperation import num_cooperating
from wsdsl.lowering.model.loading import crowding
from wsdsl.lowering.model.steps import Workload
from wsdsl.lowering.parallel_reduction import Slicing
from wsdsl.schedule import Schedule

SUM_BYTES = 4
"""Of an element of the sums."""


def split_k_cycles(asked: Workload, schedule: Schedule, work: Busiest) -> float:
    """Beside the steps and the results."""
    if not work.handed:
        return 0.0
    if schedule.reduction != "parallel":
        return _serial_cycles(asked, schedule, work)
    own = sum_cycles(asked)[0] + gather_cycles(asked, schedule, work.parts)
    return work.iterations * own + _meeting_cycles(asked, schedule)


def _serial_cycles(asked: Workload, schedule: Schedule, work: Busiest) -> float:
    written, read = sum_cycles(asked)
    hand_over, between = asked.rates.hand_over_cycles, max(0, work.parts - 2)
    if schedule.reduction == "unordered":
        between = min(1, between)
    own = work.handed * written + work.taken * read + hand_over
    return own + between * (crowding_between(asked, work) * (written + read) + hand_over)


def crowding_between(asked: Workload, work: Busiest) -> float:
    """Of pieces between the first and the last of a tile: one of each tile at the same time moves
    sums, when those do not.
    """
    moving = (work.pieces - 2 * work.cut) / max(1, work.parts - 2)
    return crowding(asked.rates, min(1.0, moving / asked.target.num_sms))


def _meeting_cycles(asked: Workload, schedule: Schedule) -> float:
    """They are launched together, and so not before the kernel in front is over."""
    return num_cooperating(schedule) * asked.rates.hand_over_cycles + asked.rates.atomic_cycles


def least_handing_cycles(asked: Workload, schedule: Schedule, work: Busiest) -> float:
    """What `split_k_cycles` is not below: each reads no less than its share of all pieces."""
    if not work.handed:
        return 0.0
    if schedule.reduction != "parallel":
        return _serial_cycles(asked, schedule, work)
    written, read = sum_cycles(asked)
    gathered = read * work.parts / min(schedule.splits or 1, max(1, asked.depth))
    return work.iterations * (written + gathered) + _meeting_cycles(asked, schedule)


def exchange_cycles(asked: Workload, work: Busiest, sharing: int) -> float:
    """Where the CTAs of a cluster share the contraction, and send each other their sums."""
    if sharing == 1:
        return 0.0
    sent = asked.sums * SUM_BYTES * (sharing - 1) / sharing
    meeting = (sharing - 1) * asked.rates.cluster_exchange_cycles
    # As much comes as goes.
    return work.iterations * (meeting + 2 * sent / asked.rates.cluster_send_bytes)


def sum_cycles(asked: Workload) -> tuple[float, float]:
    """To write the sums of a tile, and to read them."""
    moved = asked.sums * SUM_BYTES
    return moved / asked.rates.l2_store_bytes, moved / asked.rates.l2_load_bytes


def gather_cycles(asked: Workload, schedule: Schedule, parts: int) -> float:
    """To read what one CTA finishes of a tile, from all of its pieces."""
    read = results_share(asked, schedule) * parts * sum_cycles(asked)[1]
    slicing = _slicing(asked, schedule)
    return read + -(-parts // slicing.at_once(slicing.width)) * asked.rates.tma_l2_cycles


def least_split_k_cycles(asked: Workload) -> float:
    """What any way of cutting costs."""
    return asked.rates.hand_over_cycles + sum_cycles(asked)[0]


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
