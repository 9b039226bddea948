"""What it costs to put the sums of a tile's pieces together: bytes, and how many wait for others.

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


def handing_cycles(asked: Workload, schedule: Schedule, work: Busiest, sharing: int) -> float:
    """Beside the steps and the results."""
    exchanged = work.iterations * _exchange(asked, sharing) if sharing > 1 else 0.0
    if not work.handed:
        return exchanged
    (written, read), hand_over = sum_cycles(asked), asked.rates.hand_over_cycles
    if schedule.reduction == "parallel":
        own = written + gather_cycles(asked, schedule, work.parts)
        # Pieces are launched together, and so not before the kernel in front is over.
        meeting = num_cooperating(schedule) * hand_over + asked.rates.atomic_cycles
        return exchanged + work.iterations * own + meeting
    between = max(0, work.parts - 2)
    if schedule.reduction == "unordered":
        between = min(1, between)
    own = work.handed * written + work.taken * read + hand_over
    waited = crowding_between(asked, work) * (written + read) + hand_over
    return exchanged + own + between * waited


def crowding_between(asked: Workload, work: Busiest) -> float:
    """Of pieces between the first and the last of a tile: one of each tile at the same time moves
    sums, when those do not.
    """
    moving = (work.pieces - 2 * work.cut) / max(1, work.parts - 2)
    return crowding(asked.rates, min(1.0, moving / asked.target.num_sms))


def _exchange(asked: Workload, sharing: int) -> float:
    """Of a tile, for CTAs of a cluster that send each other sums: as much comes as goes."""
    sent = asked.sums * SUM_BYTES * (sharing - 1) / sharing
    meeting = (sharing - 1) * asked.rates.cluster_exchange_cycles
    return meeting + 2 * sent / asked.rates.cluster_send_bytes


def sum_cycles(asked: Workload) -> tuple[float, float]:
    """To write the sums of a tile, and to read them."""
    moved = asked.sums * SUM_BYTES
    return moved / asked.rates.l2_store_bytes, moved / asked.rates.l2_load_bytes


def gather_cycles(asked: Workload, schedule: Schedule, parts: int) -> float:
    """To read what one CTA finishes of a tile, from all of its pieces."""
    read, slicing = (
        results_share(asked, schedule) * parts * sum_cycles(asked)[1],
        slices(asked, schedule),
    )
    return read + -(-parts // slicing.at_once(slicing.width)) * asked.rates.tma_l2_cycles


def results_share(asked: Workload, schedule: Schedule) -> float:
    """The largest part of a tile that one CTA finishes."""
    if schedule.reduction != "parallel" or not asked.columns:
        return 1.0
    splits = min(schedule.splits or 1, max(1, asked.depth))
    width = slices(asked, schedule).width
    return -(-asked.columns // width // splits) * width / asked.columns


def slices(asked: Workload, schedule: Schedule) -> Slicing:
    """How pieces that meet share out a tile."""
    consumers, splits = num_cooperating(schedule), schedule.splits or 1
    least = asked.work.least_slice
    return Slicing(asked.rows, asked.columns, asked.sums, consumers, splits, least)
