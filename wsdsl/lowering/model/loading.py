"""How quickly operands come, and how far loads run ahead."""

from __future__ import annotations

from wsdsl.lowering.cooperation import cluster_size
from wsdsl.lowering.footprint import STAGING_BYTES
from wsdsl.lowering.model.numbers import AGAIN, COLD, MEMORY_SHARPNESS, RING_BYTES
from wsdsl.lowering.model.steps import Step, Workload
from wsdsl.schedule import Schedule

NARROW = 1.095
"""Where loading takes longer than products by so much, it is the limit: ..."""
NEARLY_NARROW = 0.85
"""... and from here on it may be, when all SMs load at once."""
NARROW_ROWS = 128
"""Of a tile that does not run ahead by itself, at the most."""
MAX_STAGES = 8
"""Slots of a ring, at the most, where products are the limit."""
MAX_STAGES_NARROW = 12
"""The same where loading is."""
LEAST_STAGES = 3
MAX_STAGES_FEW = 20
"""The same of few columns: a slot has few bytes, and memory is the limit."""


def loading_cycles(asked: Workload) -> float:
    """In which a tile's operands can come from L2."""
    return (asked.operand_bytes + COLD * asked.cold_bytes) / asked.rates.l2_bytes


def ring_cycles(asked: Workload, step: Step, busy: float, stages: int | None) -> float:
    """Of an iteration whose slots are `stages`, or as many as SMEM has room for: each is asked for
    when it is given back, and comes after a latency and two waits.
    """
    if stages is None:
        room = asked.target.smem_bytes - STAGING_BYTES
        stages = max(1, int(room * asked.crossing / step.loaded))
    latency = asked.rates.tma_l2_cycles + 2 * asked.rates.mbarrier_cycles
    return (latency + busy) / stages


def memory_cycles(asked: Workload) -> float:
    """In which the tensors are read and written once, by all SMs."""
    written = asked.written_bytes / max(1.0, asked.tensor_bytes)
    least = asked.tensor_bytes / asked.rates.dram_bytes(written) * asked.clock
    again = max(0.0, asked.tiles * asked.cold_bytes / max(1.0, asked.tensor_bytes) - 1)
    return least * (1 + AGAIN * again)


def is_narrow(asked: Workload, least: float = NARROW) -> bool:
    """Whether to bring operands takes longer than products by so much, all else apart; not so where
    consumers have several blocks of rows, which want deep rings.
    """
    slow = asked.operand_bytes / asked.rates.l2_bytes > least * asked.product_cycles
    return slow and asked.rows <= NARROW_ROWS


def most_stages(asked: Workload, schedule: Schedule, narrow: bool, slot_bytes: int) -> int:
    """`narrow`: loading is the limit, and all tiles run at the same time."""
    if asked.few_columns:
        return MAX_STAGES_FEW
    if schedule.reduction == "parallel" or (narrow and cluster_size(schedule) > 2):
        return MAX_STAGES_NARROW
    if not narrow:
        return MAX_STAGES
    return min(MAX_STAGES_NARROW, max(LEAST_STAGES, round(RING_BYTES / max(1, slot_bytes))))


def larger(a: float, b: float, sharpness: float = MEMORY_SHARPNESS) -> float:
    """The larger of two, and a little more where they are close."""
    top = max(a, b, 1.0)
    return top * ((a / top) ** sharpness + (b / top) ** sharpness) ** (1 / sharpness)
