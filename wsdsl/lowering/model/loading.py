"""How quickly operands come, and how far loads run ahead.

Lines of L2 have 128 bytes, of four sectors. TMA takes those of a tile one by one, whatever their
length; one that crosses from one line of L2 to the next takes longer, one that begins amid a sector
longer still. So do those of tensors whose rows are no multiple of 128 bytes, and of MN-major tiles
that are no such multiple wide.

What several CTAs of a GPC want at the same time crosses to it once. Which CTA goes to which GPC is
up to the card, but those of a cluster lie in one; so clusters of neighbours have their operands
sooner, without a byte that one CTA loads for another, while all tiles run at the same time. With
multicast each CTA asks for a part of what they have in common.
"""

from __future__ import annotations

import math
from functools import lru_cache

from wsdsl.ir.global_memory import L2_LINE
from wsdsl.ir.target import Target
from wsdsl.lowering.cooperation import cluster_size
from wsdsl.lowering.footprint import STAGING_BYTES
from wsdsl.lowering.model.numbers import AGAIN, APART_NS, HELD_UP, SHARPNESS
from wsdsl.lowering.model.steps import Step, Workload
from wsdsl.rates import Rates
from wsdsl.schedule import Schedule

NARROW = 1.095
"""Where loading takes longer than products by so much, it is the limit: ..."""
NEARLY_NARROW = 0.85
"""... and from here on it may be, when all SMs load at once."""
NARROW_ROWS = 128
"""Of a tile that does not run ahead by itself, at the most."""


def loading_cycles(asked: Workload) -> float:
    """In which a tile's operands can come from L2."""
    return asked.operand_bytes / asked.rates.l2_bytes


def ring_cycles(
    asked: Workload, step: Step, busy: float, share: float, stages: int | None
) -> float:
    """Of an iteration whose slots are `stages`, or as many as SMEM has room for: each is asked for
    when it is given back, comes from memory, and is used. `share`: of all SMs, that load.
    """
    if stages is None:
        room = asked.target.smem_bytes - STAGING_BYTES
        stages = max(1, int(room * asked.crossing / step.loaded))
    return (loaded_cycles(asked, share) + step.loaded / asked.rates.l2_bytes + busy) / stages


def loaded_cycles(asked: Workload, share: float) -> float:
    """From a load to its data, as so many of all SMs load."""
    idle, loaded = asked.rates.tma_dram_cycles, asked.rates.dram_loaded_ns * asked.clock
    return idle + max(0.0, loaded - idle) * share


def crowding(rates: Rates, share: float) -> float:
    """Of the time that a byte takes which no other SM wants, if all SMs move such: L2 has as many
    bytes for those that do, up to what one alone takes.
    """
    return max(share, rates.l2_own_bytes / rates.l2_one_bytes)


def memory_cycles(asked: Workload) -> float:
    """In which the tensors are read and written once, by all SMs."""
    again = max(0.0, asked.tiles * asked.cold_bytes / max(1.0, asked.tensor_bytes) - 1)
    least = memory_ns(asked.rates, asked.tensor_bytes, asked.written_bytes) * asked.clock
    return least * (1 + AGAIN * again)


def apart_cycles(asked: Workload, memory: float, cycles: float, in_step: int) -> float:
    """From the end of the mean CTA to that of the last one, where operands are computed from what
    memory brings; `in_step`: CTAs that load for each other.
    """
    if not any(step.decodes for step in asked.steps):
        return 0.0
    held_up = min(1.0, memory / max(1.0, cycles)) ** HELD_UP
    return held_up * APART_NS * asked.clock / math.sqrt(in_step)


def memory_ns(rates: Rates, moved: float, written: float) -> float:
    """In which memory could move so many bytes, of which some are written."""
    return moved / rates.dram_bytes(written / max(1.0, moved))


def is_narrow(asked: Workload, least: float = NARROW) -> bool:
    """Whether to bring operands takes longer than products by so much, all else apart; not so where
    consumers have several blocks of rows, which want deep rings.
    """
    slow = asked.operand_bytes / asked.rates.l2_bytes > least * asked.product_cycles
    return slow and asked.rows <= NARROW_ROWS


def is_one_wave(target: Target, pieces: int) -> bool:
    """Whether most SMs have one, and no SM two."""
    return target.num_sms / 2 < pieces <= target.num_sms


def is_narrow_wave(asked: Workload, least: float = NARROW) -> bool:
    """The same of whole tiles, where to load operands is the limit."""
    return is_one_wave(asked.target, asked.tiles) and is_narrow(asked, least)


def larger(a: float, b: float) -> float:
    """The larger of two that run beside each other, and a little more where they are close."""
    top = max(a, b, 1.0)
    return top * ((a / top) ** SHARPNESS + (b / top) ** SHARPNESS) ** (1 / SHARPNESS)


SECTOR_BYTES = 32
"""What GMEM is written in, and L2 holds."""
SEEN = 8
"""Rows and tiles: then offsets begin again, all being multiples of 16 bytes."""


@lru_cache(maxsize=4096)
def crossing(rates: Rates, row: int, tile: int, line: int, along_contraction: bool) -> float:
    """How much longer lines of `line` bytes take than aligned ones, where rows are `row` bytes
    apart and tiles `tile`: in the mean of rows, and of tiles if one CTA has all of them; else of
    the tile that takes longest.
    """

    def taken(offset: int) -> float:
        if offset % SECTOR_BYTES:
            return rates.l2_split
        return rates.l2_crossing if offset % L2_LINE + line > L2_LINE else 1.0

    of_tiles = [
        sum(taken(i * tile + j * row) for j in range(SEEN)) / SEEN
        for i in range(SEEN if tile else 1)
    ]
    return sum(of_tiles) / len(of_tiles) if along_contraction else max(of_tiles)


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
