"""How many slots a ring has, where the schedule leaves it open: as many as loads must run ahead."""

import math

from wsdsl.ir.op import Kernel
from wsdsl.ir.types import Sizes
from wsdsl.lowering import footprint
from wsdsl.lowering.cooperation import cluster_size
from wsdsl.lowering.cost_model.predict import predict
from wsdsl.lowering.cost_model.speeds import is_narrow, is_narrow_wave, loading_cycles
from wsdsl.lowering.cost_model.workload import Work, Workload
from wsdsl.lowering.smem_allocations import LEAST_LOOKAHEAD, STAGING_BUFFERS, fits_smem, smem_bytes
from wsdsl.schedule import Schedule

LOOKAHEAD = 3072.0
"""Cycles of the tensor cores by which loads run ahead of products. Less starves them; more holds
SMEM that results could use, and lets CTAs that want the same drift apart."""
RING_BYTES = 170 << 10
"""Of slots, at the most, where loading is the limit and all tiles run at the same time: with more
under way, CTAs that load the same do so at different times."""
UNDER_WAY = 5.0
"""Times what memory has under way while it is busy, that slots of computed operands hold. Of more
the first come later, and who computes no faster than memory brings does not catch up."""
MOSTLY_MEMORY = 0.55
"""The share of memory in the time from which on another slot counts for more than a second buffer
for results."""
MAX_STAGES = 8
"""Slots of a ring, at the most, where products are the limit."""
MAX_STAGES_NARROW = 12
"""The same where loading is."""
LEAST_STAGES = 3
MAX_STAGES_IN_TURN = 6
"""The same where loading is the limit and an SM has several tiles: with more slots, CTAs that want
the same lines get out of step, and L2 gives each half as much. Tiles of 64 x 144 and 128 x 64 take
1.3 times as long with eight (benchmarks/results/one_off_races.md)."""
MAX_STAGES_FEW = 20
"""The same of few columns: a slot has few bytes, and memory is the limit."""


def ring_depth(kernel: Kernel, chosen: Schedule, work: Work, tile: Sizes) -> int:
    """As deep as loads must run ahead, or as SMEM allows; where that is too little, the results of
    whole tiles are stored through one buffer.
    """
    cycles = max(1, footprint.slot_cycles(kernel, chosen))
    wanted = math.ceil(LOOKAHEAD / cycles)
    late = footprint.row_blocks(kernel, chosen) > 1 or any(work.coldness.values())
    if late and not _is_pingpong(kernel, chosen):
        wanted += 1
    slot_bytes = smem_bytes(kernel, chosen, 2) - smem_bytes(kernel, chosen, 1)
    own = predict(work, chosen, tile)
    narrow = work.sized and is_narrow_wave(own.tile) and not own.memory_bound
    if chosen.cuts_tiles:
        narrow = loading_cycles(own.tile) > own.tile.product_cycles
    mostly_memory = own.memory / own.cycles > MOSTLY_MEMORY
    most = _most_stages(own.tile, chosen, narrow, slot_bytes)
    several = own.tile.tiles > own.tile.target.num_sms
    if several and not (mostly_memory or chosen.cuts_tiles) and is_narrow(own.tile):
        most = min(most, MAX_STAGES_IN_TURN, RING_BYTES // max(1, slot_bytes))
    wanted = max(2, min(wanted, most))
    fills = work.thin or mostly_memory
    if fills and chosen.scheduler != "stream_k":
        wanted = max(2, min(wanted, _busy_memory(work, tile)))
    ahead = max(LEAST_STAGES, -(-LEAST_LOOKAHEAD // cycles))
    enough = 2 if chosen.cuts_tiles else min(ahead, wanted)
    waits = not chosen.cuts_tiles and mostly_memory
    if waits and not _is_pingpong(kernel, chosen):
        # What is under way counts for more than a second buffer for results.
        enough = wanted
    if (chosen.tile_n_variants or 1) > 1:
        # So it does for narrow tiles, whose slots are over soon: with one slot less they take 5 to
        # 7 % longer (benchmarks/results/one_off_races.md).
        wanted = enough = MAX_STAGES_NARROW
    for buffers, least in ((STAGING_BUFFERS, enough), (1, 2)):
        for stages in range(wanted, least - 1, -1):
            if fits_smem(kernel, chosen, stages, buffers):
                return stages
    return 1


def _is_pingpong(kernel: Kernel, chosen: Schedule) -> bool:
    """Whether something else has the tensor cores while a consumer waits: another one's tile, or
    what it does with each of its blocks.
    """
    return chosen.mode == "pingpong" or bool(footprint.promoted_registers(kernel, chosen))


def _busy_memory(work: Work, tile: Sizes) -> int:
    """Slots of what operands are computed from; any number where none are."""
    rates, used = work.rates, work.made_of
    slot = sum(load.bytes(tile) for load in work.load_terms if load.op.result in used)
    if not slot:
        return MAX_STAGES_FEW
    own = rates.dram_loaded_ns * rates.dram_read_bytes / rates.num_sms
    return max(LEAST_STAGES, round(UNDER_WAY * own / slot))


def _most_stages(asked: Workload, schedule: Schedule, narrow: bool, slot_bytes: int) -> int:
    """`narrow`: loading is the limit, and all tiles run at the same time."""
    if asked.few_columns:
        return MAX_STAGES_FEW
    if schedule.reduction == "parallel" or (narrow and cluster_size(schedule) > 2):
        return MAX_STAGES_NARROW
    if not narrow:
        return MAX_STAGES
    return min(MAX_STAGES_NARROW, max(LEAST_STAGES, round(RING_BYTES / max(1, slot_bytes))))
