"""How long a schedule takes, by rates of the card: the steady state of its loops, with waves and
memory on top.

An iteration takes as long as what limits it: the tensor cores, instructions, operands from L2, or
slots that come back (`interval`). Results are computed while the tensor cores wait, but beside
another tile's products in ping-pong. The busiest SM counts; sums that are handed on come on top.
No kernel is quicker than memory. `benchmarks/predictions.py` tells how far off this is.
"""

import math
from collections.abc import Iterator

from wsdsl.ir.tile_scheduler import tile_scheduler
from wsdsl.ir.types import THREADS, Sizes
from wsdsl.lowering.cooperation import (
    cluster_size,
    cluster_splits_beside,
    num_cooperating,
    num_pingpong_consumers,
)
from wsdsl.lowering.cost_model import constants, speeds
from wsdsl.lowering.cost_model.memory_bound import MEMORY, PlainCost, plain_of
from wsdsl.lowering.cost_model.workload import Step, Work, Workload, start_cycles
from wsdsl.lowering.parallel_reduction import Slicing
from wsdsl.lowering.register_layout import holds_vectors
from wsdsl.lowering.smem_allocations import STAGING_BYTES
from wsdsl.lowering.wave_quantization import Busiest, busiest, claimed_unevenness, unevenness
from wsdsl.record import record
from wsdsl.schedule import Schedule

SHARING = (8, 4, 2)
"""CTAs of a cluster that may share a contraction."""
SUM_BYTES, ROUNDING = 4, 1 - 1e-9
"""Of an element of sums; and by less than so much cycles differ that are added in other order."""


@record
class Prediction:
    """Cycles, in all and of their parts."""

    cycles: float
    tile: Workload  # What each CTA has of it, where several share its contraction.
    work: Busiest
    rounds: float  # Tiles of the busiest SM.
    mainloop: float  # Of a tile's loops.
    epilogue: float  # Of its results.
    apart: float  # Of a tile's loops where workers are not in step (`Busiest.apart`).
    handing: float = 0.0  # For sums that are handed on.
    memory: float = 0.0  # What memory takes at the least.
    memory_bound: bool = False
    stretch: float = 1.0  # By how much longer steps and results take for memory.
    gain: float = 1.0  # By how much quicker operands come.
    sharing: int = 1  # CTAs of a cluster that share the contraction of a tile.
    plain: PlainCost | None = None  # Of a kernel without products.

    @property
    def busy(self) -> float:
        """The share of the SMs' steps that are not idle."""
        return self.tile.tiles / (self.rounds * self.tile.target.num_sms)

    @property
    def microseconds(self) -> float:
        return self.cycles / self.tile.clock / 1000

    @property
    def resident(self) -> int:
        """CTAs per SM at the same time."""
        return self.plain.ctas_per_sm if self.plain else 1


def predict(work: Work, schedule: Schedule, tile: Sizes) -> Prediction:
    """`tile`: elements of a tile along every axis, the widest of a schedule of several widths."""
    tile = speeds.at_launch(work, schedule, tile)
    if holds_vectors(work.kernel) and not schedule.cuts_tiles:
        return _of_vectors(plain_of(work).cost(schedule, tile), schedule)
    asked = work.under(tile, schedule)
    sharing = cluster_splits_beside(schedule, (loop.index for loop in work.nest))
    if sharing > 1:
        return predicted(asked.shared_out(sharing), schedule, 1.0, sharing)
    return predicted(asked, schedule, speeds.gain_of(asked, schedule, tile))


def _of_vectors(cost: PlainCost, schedule: Schedule) -> Prediction:
    """Of a kernel without products: all of a tile is what stands outside of loops of products."""
    asked, cluster = cost.tile, cluster_size(schedule)
    scheduler = tile_scheduler(schedule.scheduler or "", 1)
    work = busiest(scheduler, -(-asked.tiles // cluster), 1, asked.target.cluster_room(cluster))
    each = (cost.cycles - asked.start) / work.iterations
    return Prediction(
        cost.cycles, asked, work, work.steps, mainloop=0.0, epilogue=each, apart=0.0,
        memory=cost.units[MEMORY], memory_bound=cost.limit == MEMORY, plain=cost,
    )  # fmt: skip


def predicted(asked: Workload, schedule: Schedule, gain: float, sharing: int = 1) -> Prediction:
    """`gain` and `sharing`: see `Prediction`."""
    target, cluster, rates = asked.target, cluster_size(schedule), asked.rates
    scheduler = tile_scheduler(schedule.scheduler or "", schedule.splits or 1)
    depth, room = max(1, asked.depth) if scheduler.splits_tiles else 1, target.cluster_room(cluster)
    work = busiest(scheduler, -(-asked.tiles // cluster), depth, room)
    share = asked.tiles * depth / (work.steps * target.num_sms)
    apart, epilogue = tile_cycles(asked, schedule, share, gain / astray(asked, schedule))
    mainloop = apart
    if 0 < work.apart < work.steps:
        mainloop, epilogue = tile_cycles(asked, schedule, share, gain)
    cycles = ((work.steps - work.apart) * mainloop + work.apart * apart) / depth
    if asked.uneven > 1:
        of = claimed_unevenness if schedule.scheduler in ("grid", "dynamic") else unevenness
        cycles *= of(asked.tiles, min(work.workers, room), asked.uneven)
    if schedule.scheduler == "dynamic":
        # An answer that has come is waited for, and given back.
        cycles += 2 * work.iterations * rates.mbarrier_cycles
    results = epilogue * results_share(asked, schedule)
    if num_pingpong_consumers(schedule) > 1 and work.iterations > 1:
        beside = max(asked.turn, (2 * epilogue - mainloop) / 2)
        cycles += work.iterations * beside + results
    else:
        cycles += work.finished * results
    again = max(0.0, asked.tiles * asked.cold_bytes / max(1.0, asked.work.tensor_bytes) - 1)
    memory = asked.work.least_memory_cycles * (1 + constants.AGAIN * again)
    together = 1 if schedule.multicast is False else cluster // sharing
    bounded = speeds.larger(cycles, memory) + speeds.apart_cycles(asked, memory, cycles, together)
    handing = handing_cycles(asked, schedule, work, sharing)
    return Prediction(
        asked.start + bounded + handing, asked, work, work.steps / depth, mainloop, epilogue, apart,
        handing, memory, memory_bound=memory > cycles, stretch=bounded / max(1.0, cycles),
        gain=gain, sharing=sharing,
    )  # fmt: skip


def tile_cycles(
    asked: Workload, schedule: Schedule, share: float, gain: float
) -> tuple[float, float]:
    """Of a tile's loops, and of what stands outside of them, where so many of all SMs have one."""
    pace = speeds.pace_of(asked, share)
    each = [(s, interval(asked, schedule, s, pace, share, gain)) for s in asked.steps]
    mainloop = sum([step.times * cycles for step, cycles in each if step.in_loop])
    return mainloop, sum([cycles for step, cycles in each if not step.in_loop])


def interval(
    asked: Workload, schedule: Schedule, step: Step, pace: float, share: float, gain: float
) -> float:
    """Cycles from one iteration of a loop to the next, of all consumers of a tile."""
    rates, warps = asked.rates, num_cooperating(schedule)
    # One thread multiplies beside those who compute, where sums lie in tensor memory.
    alone = step.chained and warps == 1 and not asked.target.has_tensor_memory
    computing = step.instructions / (rates.fma_lanes if alone else speeds.issuing(rates, warps))
    if step.decodes:
        # Each half of an iteration waits for products that read what the last one made.
        computing += constants.DECODING_STEP * THREADS * warps / speeds.issuing(rates, warps)
        computing += rates.tensor_latency_cycles + constants.PRODUCT_ISSUE * step.tensor
    # TMA fills slots while products read others.
    smem = (step.read + rates.smem_fill_sharing * step.loaded) / rates.tensor_smem_bytes
    tensor = 0.0
    if step.tensor:
        tensor = speeds.larger(step.tensor, smem) * speeds.power(rates, asked.bytes_per_cycle)
        tensor += _promoting(asked, schedule) if asked.promoted else 0.0
    # Others' products run beside what a consumer computes, and so do its own of half a step.
    busy = pace * (tensor + computing if alone else speeds.larger(tensor, computing))
    moved = step.direct / rates.l2_load_bytes + step.stored / rates.l2_tma_store_bytes
    busy += speeds.crowding(rates, share) * moved
    if step.direct and not asked.product_cycles:
        # Beside products it is asked for ahead.
        busy += speeds.loaded_cycles(asked, share)
    if not step.loaded:
        return busy
    cycles = speeds.larger(busy, step.loaded / (gain * speeds.l2_bytes(rates, share)))
    if step.times <= 1:
        return cycles
    # A slot is asked for when it is given back, comes from memory, and is used.
    room = (asked.target.smem_bytes - STAGING_BYTES) * asked.crossing
    stages = schedule.stages or max(1, int(room / step.loaded))
    slot = speeds.loaded_cycles(asked, share) + step.loaded / rates.l2_bytes + busy
    return max(cycles, slot / stages)


def astray(asked: Workload, schedule: Schedule) -> float:
    """By how much longer operands take that come to CTAs out of step: in stream-K no two want the
    same lines at the same time."""
    if schedule.scheduler == "stream_k":
        return asked.rates.l2_bytes / asked.rates.l2_own_bytes
    apart = schedule.cuts_tiles and schedule.reduction != "parallel"
    return constants.ASTRAY if apart or asked.is_shared_out else 1.0


def _promoting(asked: Workload, schedule: Schedule) -> float:
    """Cycles of an iteration whose products are read at once, and added to other sums."""
    scaled, blocks = asked.work.scaled, asked.rows // (64 * num_cooperating(schedule))
    further = (
        constants.FURTHER_SCALED_CYCLES if scaled else constants.FURTHER_CYCLES * asked.columns
    )
    each = asked.rates.tensor_latency_cycles + max(0, blocks - 1) * further
    each += constants.SCALED_CYCLES if scaled and (schedule.consumers or 1) < 3 else 0.0
    times = sum(step.times for step in asked.steps if step.tensor)
    return (asked.promoted * each + asked.further_parts * constants.FURTHER_SCALED_CYCLES) / times


def handing_cycles(asked: Workload, schedule: Schedule, work: Busiest, sharing: int) -> float:
    """For sums that are handed on. In a serial reduction workers write their own and read others',
    between the first and the last of a tile one after another; in a parallel one all write, meet,
    read a part of each, and meet again."""
    rates, (written, read), exchanged = asked.rates, sum_cycles(asked), 0.0
    if sharing > 1:
        # As much comes as goes.
        sent = asked.sums * SUM_BYTES * (sharing - 1) / sharing
        exchanged = (sharing - 1) * rates.cluster_exchange_cycles
        exchanged += 2 * sent / rates.cluster_send_bytes
    if work.handed and schedule.reduction == "parallel":
        exchanged += written + gather_cycles(asked, schedule, work.parts)
        # Pieces are launched together, and so not before the kernel in front is over.
        meeting = num_cooperating(schedule) * rates.hand_over_cycles + rates.atomic_cycles
        return work.iterations * exchanged + meeting
    if not work.handed:
        return work.iterations * exchanged
    between = max(0, work.parts - 2)
    own = work.handed * written + work.taken * read + rates.hand_over_cycles
    own += between * crowding_between(asked, work) * (written + read)
    return work.iterations * exchanged + own + between * rates.hand_over_cycles


def crowding_between(asked: Workload, work: Busiest) -> float:
    """Of pieces between the first and the last: one of each tile at the same time moves sums."""
    moving = (work.pieces - 2 * work.cut) / max(1, work.parts - 2)
    return speeds.crowding(asked.rates, min(1.0, moving / asked.target.num_sms))


def sum_cycles(asked: Workload) -> tuple[float, float]:
    """To write the sums of a tile, and to read them."""
    moved = asked.sums * SUM_BYTES
    return moved / asked.rates.l2_store_bytes, moved / asked.rates.l2_load_bytes


def gather_cycles(asked: Workload, schedule: Schedule, parts: int) -> float:
    """To read what one CTA finishes of a tile, from all of its pieces."""
    slicing, share = slices(asked, schedule), results_share(asked, schedule)
    read = share * parts * sum_cycles(asked)[1]
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


def floors(work: Work, schedule: Schedule, tile: Sizes) -> Iterator[float]:
    """Cycles that no prediction of such tiles is below, which ask little: where each has an SM to
    itself, where they are cut, and where the CTAs of a cluster share each (inf without room)."""
    rates, sms, least = work.rates, work.target.num_sms, work.least_memory_cycles
    if holds_vectors(work.kernel):
        yield from (*[start_cycles(rates, has_products=False)] * 2, math.inf)
        return
    tiles, products, read, loaded, stored, sums = work.least(tile)
    if work.target.has_tensor_memory and products:
        # None is more than twice what it is of a pair.
        products, read, loaded = products / 2, read / 2, loaded / 2
    faster = speeds.power(rates, loaded / max(1.0, products))
    smem = (read + rates.smem_fill_sharing * loaded) / rates.tensor_smem_bytes
    products = speeds.larger(products, smem) * faster if products else 0.0
    start, tiles = start_cycles(rates, products > 0) * ROUNDING, max(1, tiles)

    def mainloop(share: float, gain: float = 1.0) -> float:
        slower = speeds.clock_pace(rates, share if products else 0.0)
        operands = loaded / (gain * speeds.l2_bytes(rates, share))
        return speeds.larger(products * slower, operands) * ROUNDING

    waves = -(-tiles // sms)
    share = tiles / (waves * sms)
    at_once = waves == 1 or schedule.cluster
    gain = speeds.best_gain(rates) if at_once else max(1.0, speeds.cluster_gain(rates, 2, True))
    results = speeds.crowding(rates, share) * stored / rates.l2_tma_store_bytes
    waves = tiles / sms if work.uneven_axes else waves
    beside = waves > 1 and schedule.mode == "pingpong"
    whole = results + 2 * waves * rates.mbarrier_cycles if beside else waves * results
    yield start + max(whole + waves * mainloop(share, gain), least)
    cut = max(tiles * mainloop(1.0) / sms, least)
    yield start + cut + rates.hand_over_cycles + SUM_BYTES * sums / rates.l2_store_bytes
    few = tiles <= work.target.cluster_room(SHARING[-1])
    most = next((n for n in SHARING if few and tiles <= work.target.cluster_room(n)), 0)
    shared = max(mainloop(min(1.0, most * tiles / sms)) / most, least) if most else math.inf
    yield (
        start + shared + rates.cluster_exchange_cycles + SUM_BYTES * sums / rates.cluster_send_bytes
    )


def least_cut(own: Prediction, whole: Schedule) -> float:
    """The same of tiles that are cut: all SMs are busy, and sums are handed on once."""
    asked, multicast = own.tile, whole.multicast is not False
    gain = speeds.cluster_gain(asked.rates, cluster_size(whole), multicast)
    mainloop, _ = tile_cycles(asked, whole, 1.0, gain)
    steps = 0.0 if asked.uneven > 1 else mainloop * asked.tiles / asked.target.num_sms
    handing = asked.rates.hand_over_cycles + sum_cycles(asked)[0]
    return (asked.start + max(steps, own.memory) + handing) * ROUNDING
