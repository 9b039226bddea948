"""How long a schedule takes, by rates of the card: the steady state of its loops, with waves and
memory on top.

An iteration of a loop takes as long as what limits it: the tensor cores, instructions, operands
that come from L2, or slots that come back (`interval`). A tile takes its iterations, and what
stands outside of loops: results are computed and stored while the tensor cores wait, but beside
another tile's products where consumers are in ping-pong. All SMs take as many tiles as the busiest
has; of tiles that are cut, the worker counts that has most steps of the contraction, and the sums
that are handed on come on top (`split_k_cost`). No kernel is quicker than its tensors are read and
written once. What moves more bytes, and keeps more SMs busy, runs by a lower clock.

`benchmarks/predictions.py` tells how far this is from what is measured.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from wsdsl.ir.tile_scheduler import tile_scheduler
from wsdsl.ir.types import THREADS, Axis
from wsdsl.lowering.busiest import Busiest, busiest, claimed_unevenness, unevenness
from wsdsl.lowering.cooperation import (
    cluster_along,
    cluster_size,
    cluster_splits_beside,
    num_cooperating,
    num_pingpong_consumers,
)
from wsdsl.lowering.cta_pairs import in_pairs
from wsdsl.lowering.model.at_launch import at_launch
from wsdsl.lowering.model.loading import (
    apart_cycles,
    best_gain,
    crowding,
    gain_of,
    is_one_wave,
    larger,
    loaded_cycles,
    memory_cycles,
    ring_cycles,
)
from wsdsl.lowering.model.numbers import (
    ASTRAY,
    DECODING_STEP,
    FURTHER_CYCLES,
    FURTHER_SCALED_CYCLES,
    IDLE_POWER,
    PRODUCT_ISSUE,
    RATE_BYTES,
    READY,
    SCALED_CYCLES,
)
from wsdsl.lowering.model.of_pair import of_pair
from wsdsl.lowering.model.plain import MEMORY, PlainCost
from wsdsl.lowering.model.sharers import are_scattered
from wsdsl.lowering.model.split_k_cost import (
    SUM_BYTES,
    exchange_cycles,
    results_share,
    split_k_cycles,
)
from wsdsl.lowering.model.steps import Step, Workload, start_cycles
from wsdsl.lowering.model.workload import Work
from wsdsl.rates import Rates
from wsdsl.schedule import Schedule, changed

SHARING = (8, 4, 2)
"""CTAs of a cluster that may share a contraction."""


@dataclass(frozen=True)
class Prediction:
    """`cycles` in all, and what they are made of: those of a tile's loops and of its results (of
    a CTA's part, where several share it), of handing on sums, and what memory takes at the least.
    """

    cycles: float
    tile: Workload
    work: Busiest
    mainloop: float
    epilogue: float
    apart: float = 0.0
    """A tile's loops where its workers are not in step (`Busiest.apart`)."""
    handing: float = 0.0
    memory: float = 0.0
    stretch: float = 1.0
    """By how much longer steps and results take for memory, or shorter for what idle SMs leave."""
    gain: float = 1.0
    """By how much quicker operands come, as CTAs of a cluster lie in one GPC."""
    sharing: int = 1
    """CTAs of a cluster that share the contraction of a tile; `tile` is what each has of it."""
    memory_bound: bool = False
    """Whether it is memory that takes longest."""
    pace: float = 1.0
    """By how much longer, or shorter, an SM takes for what it does, as its clock is."""
    crowding: float = 1.0
    """Of the time that bytes of one SM take, as others move such."""
    plain: PlainCost | None = None
    """Of a kernel without products."""

    @property
    def waves(self) -> int:
        """How many tiles' time the busiest SM has work for."""
        return -(-self.work.steps // self._depth)

    @property
    def busy(self) -> float:
        """The share of the SMs' steps that are not idle."""
        return self.tile.tiles * self._depth / (self.work.steps * self.tile.target.num_sms)

    @property
    def _depth(self) -> int:
        return max(1, self.tile.depth) if self.work.cut else 1

    @property
    def microseconds(self) -> float:
        return self.cycles / self.tile.clock / 1000


def predict(work: Work, schedule: Schedule, tile: Mapping[str, int]) -> Prediction:
    """`tile`: elements of a tile along every axis under the schedule, the widest if it has several
    widths, of which a launch of these sizes has one."""
    tile = at_launch(work, schedule, tile)
    if work.plain and not schedule.cuts_tiles:
        return _of_vectors(work.plain.cost(schedule, tile), schedule)
    cluster = clustered(work, schedule)
    asked = work.under(tile, cluster, {} if schedule.multicast is False else cluster)
    if in_pairs(schedule):
        asked = of_pair(work, asked, tile)
    sharing = cluster_splits_beside(schedule, (loop.index for loop in work.nest))
    if sharing > 1:
        return predicted(shared_out(asked, sharing), schedule, sharing=sharing)
    pieces = num_pieces(asked, schedule)
    # Where launches choose how wide tiles are, clusters gain all the same
    # (benchmarks/results/one_off_races.md).
    one_width = (schedule.widths or 1) == 1
    if one_width and pieces <= work.target.num_sms and are_scattered(work, tile, cluster):
        return predicted(asked, schedule, 1 / ASTRAY)
    at_once = is_one_wave(work.target, pieces)
    return predicted(asked, schedule, gain_of(asked, schedule, at_once=at_once))


def _of_vectors(cost: PlainCost, schedule: Schedule) -> Prediction:
    """Of a kernel without products; all of a tile is what stands outside of loops of products."""
    asked, cluster = cost.tile, cluster_size(schedule)
    scheduler = tile_scheduler(schedule.scheduler or "", 1)
    room = asked.target.cluster_room(cluster)
    work = busiest(scheduler, -(-asked.tiles // cluster), 1, room)
    each = (cost.cycles - asked.start) / work.iterations
    limited = cost.limit == MEMORY
    memory = cost.memory_ns * asked.clock
    return Prediction(
        cost.cycles, asked, work, 0.0, each, memory=memory, memory_bound=limited, plain=cost
    )


def clustered(work: Work, schedule: Schedule) -> dict[str, int]:
    """CTAs of a cluster, by axis of the output."""
    if not schedule.cluster:
        return {}
    axes = (loop.index.type for loop in work.nest)
    found = {a.name: cluster_along(schedule, a.name) for a in axes if isinstance(a, Axis)}
    return {name: num for name, num in found.items() if num > 1}


def shared_out(asked: Workload, sharing: int) -> Workload:
    """Of each CTA, where so many share the contraction of a tile: as if tiles were more."""
    part = -(-asked.depth // sharing) / max(1, asked.depth)

    def own(step: Step) -> Step:
        if step.in_loop:
            return dataclasses.replace(step, times=step.times * part)
        computing, stored = step.instructions / sharing, step.stored / sharing
        return dataclasses.replace(step, instructions=computing, stored=stored)

    return dataclasses.replace(
        asked,
        shared_out=True,
        steps=tuple(map(own, asked.steps)),
        tiles=asked.tiles * sharing,
        depth=-(-asked.depth // sharing),
        product_cycles=asked.product_cycles * part,
        operations=asked.operations * part,
        operand_bytes=asked.operand_bytes * part,
        promoted=asked.promoted * part,
        further_parts=asked.further_parts * part,
    )


def num_pieces(asked: Workload, schedule: Schedule) -> int:
    """Tiles, or what split-K makes of them."""
    splits = (schedule.splits or 1) if schedule.scheduler == "split_k" else 1
    return asked.tiles * min(splits, max(1, asked.depth))


def predicted(
    asked: Workload, schedule: Schedule, gain: float = 1.0, sharing: int = 1
) -> Prediction:
    """`gain`: by how much quicker operands come; `sharing`: CTAs of a cluster that share the
    contraction of a tile.
    """
    target, cluster, rates = asked.target, cluster_size(schedule), asked.rates
    scheduler = tile_scheduler(schedule.scheduler or "", schedule.splits or 1)
    depth = max(1, asked.depth) if scheduler.splits_tiles else 1
    work = busiest(scheduler, -(-asked.tiles // cluster), depth, target.cluster_room(cluster))
    share = min(1.0, asked.tiles * depth / (work.steps * target.num_sms))
    mainloop, epilogue = tile_cycles(asked, schedule, share, gain)
    apart = mainloop
    if 0 < work.apart < work.steps:
        mainloop, epilogue = tile_cycles(asked, in_step(schedule), share, gain)
    cycles = ((work.steps - work.apart) * mainloop + work.apart * apart) / depth
    if asked.uneven > 1:
        of = claimed_unevenness if schedule.scheduler in ("grid", "dynamic") else unevenness
        at_once = min(work.workers, target.cluster_room(cluster))
        cycles *= of(asked.tiles, at_once, asked.uneven)
    if schedule.scheduler == "dynamic":
        # An answer that has come is waited for, and given back.
        cycles += 2 * work.iterations * rates.mbarrier_cycles
    results = epilogue * results_share(asked, schedule)
    if num_pingpong_consumers(schedule) > 1 and work.iterations > 1:
        beside = max(asked.turn, (2 * epilogue - mainloop) / 2)
        cycles += work.iterations * beside + results
    else:
        cycles += work.finished * results
    memory = memory_cycles(asked)
    bounded = asked.start + larger(cycles, memory)
    handing = split_k_cycles(asked, schedule, work) + exchange_cycles(asked, work, sharing)
    together = 1 if schedule.multicast is False else cluster // sharing
    bounded += apart_cycles(asked, memory, cycles, together)
    return Prediction(
        cycles=bounded + handing,
        tile=asked,
        work=work,
        mainloop=mainloop,
        apart=apart,
        epilogue=epilogue,
        handing=handing,
        memory=memory,
        stretch=(bounded - asked.start) / max(1.0, cycles),
        gain=gain,
        sharing=sharing,
        memory_bound=memory > cycles,
        pace=pace_of(asked, share),
        crowding=crowding(rates, share),
    )


def tile_cycles(
    asked: Workload, schedule: Schedule, share: float, gain: float
) -> tuple[float, float]:
    """Of a tile's loops, and of what stands outside of them, where so many of all SMs have one."""
    pace, mainloop, epilogue = pace_of(asked, share), 0.0, 0.0
    for step in asked.steps:
        cycles = interval(asked, schedule, step, pace, share, gain)
        if step.in_loop:
            mainloop += step.times * cycles
        else:
            epilogue += cycles
    return mainloop, epilogue


def pace_of(asked: Workload, share: float) -> float:
    if any(step.decodes for step in asked.steps):
        # Threads that compute beside products take the power that idle SMs leave: i4 weights of 64
        # rows ran at 1.60 GHz on 112 of 132 SMs of an H100.
        return 1.0
    return clock_pace(asked.rates, share if asked.product_cycles else 0.0)


def clock_pace(rates: Rates, share: float) -> float:
    """By how much longer than at the clock at which cycles are told an SM takes, if so many of all
    multiply: power goes by the third power of the clock, and others take some, too.
    """
    power = share + (1 - share) * IDLE_POWER
    return max(rates.tensor_smem_clock / rates.clock, power ** (1 / 3))


def power(rates: Rates, bytes_per_cycle: float) -> float:
    """By how much longer products take, as the clock is lower the more there is to move."""
    moved = min(1.0, bytes_per_cycle / RATE_BYTES)
    return 1 + (rates.tensor_smem_clock / rates.tensor_l2_clock - 1) * moved


def l2_bytes(rates: Rates, share: float) -> float:
    """That come to an SM in a cycle, of lines that others want as well, if so many of all ask."""
    return rates.l2_one_bytes + share * (rates.l2_bytes - rates.l2_one_bytes)


def issuing(rates: Rates, warps: int) -> float:
    """Instructions a cycle of threads, of so many warps a scheduler."""
    return rates.fma_lanes * (1 - (1 - READY) ** warps)


def power_of(asked: Workload) -> float:
    return power(asked.rates, asked.bytes_per_cycle)


def interval(
    asked: Workload, schedule: Schedule, step: Step, pace: float, share: float, gain: float
) -> float:
    """Cycles from one iteration of a loop to the next, of all consumers of a tile."""
    rates, warps = asked.rates, num_cooperating(schedule)
    # One thread multiplies beside those who compute, where sums lie in tensor memory.
    alone = step.chained and warps == 1 and not asked.target.has_tensor_memory
    computing = step.instructions / (rates.fma_lanes if alone else issuing(rates, warps))
    if step.decodes:
        # Each half of an iteration waits for products that read what the last one made.
        computing += DECODING_STEP * THREADS * warps / issuing(rates, warps)
        computing += rates.tensor_latency_cycles + PRODUCT_ISSUE * step.tensor
    # TMA fills slots while products read others.
    smem = (step.read + rates.smem_fill_sharing * step.loaded) / rates.tensor_smem_bytes
    tensor = larger(step.tensor, smem) * power_of(asked) if step.tensor else 0.0
    if asked.promoted and step.tensor:
        tensor += _promoting(asked, schedule)
    # Others' products run beside what a consumer computes, and so do its own of half a step.
    busy = pace * (tensor + computing if alone else larger(tensor, computing))
    crowd = crowding(rates, share)
    busy += crowd * (step.direct / rates.l2_load_bytes + step.stored / rates.l2_tma_store_bytes)
    if step.direct and not asked.product_cycles:
        # Beside products it is asked for ahead.
        busy += loaded_cycles(asked, share)
    if not step.loaded:
        return busy
    loading = step.loaded * astray(asked, schedule) / (gain * l2_bytes(rates, share))
    cycles = larger(busy, loading)
    if step.times > 1:
        cycles = max(cycles, ring_cycles(asked, step, busy, share, schedule.stages))
    return cycles


def in_step(schedule: Schedule) -> Schedule:
    """Of whole tiles, whose workers go through the contraction together."""
    return changed(schedule, scheduler="persistent", splits=None, reduction=None)


def astray(asked: Workload, schedule: Schedule) -> float:
    """By how much longer operands take that come to CTAs out of step: in stream-K no two want the
    same lines at the same time.
    """
    if schedule.scheduler == "stream_k":
        return asked.rates.l2_bytes / asked.rates.l2_own_bytes
    apart = schedule.cuts_tiles and schedule.reduction != "parallel"
    return ASTRAY if apart or asked.shared_out else 1.0


def _promoting(asked: Workload, schedule: Schedule) -> float:
    """Cycles of an iteration whose products are read at once, and added to other sums."""
    rates, products = asked.rates, asked.promoted / sum(s.times for s in asked.steps if s.tensor)
    blocks = asked.rows // (64 * num_cooperating(schedule))
    scaled = SCALED_CYCLES if asked.scaled and (schedule.consumers or 1) < 3 else 0.0
    further = FURTHER_SCALED_CYCLES if asked.scaled else FURTHER_CYCLES * asked.columns
    each = rates.tensor_latency_cycles + max(0, blocks - 1) * further + scaled
    parts = asked.further_parts / max(1.0, asked.promoted)
    return products * (each + parts * FURTHER_SCALED_CYCLES)


def floors(work: Work, schedule: Schedule, tile: Mapping[str, int]) -> tuple[float, float, float]:
    """Cycles that no prediction of such tiles is below: where each has an SM to itself, where they
    are cut, and where the CTAs of a cluster share each. Asks little: that products are made,
    operands come from L2 as quickly as they do to any cluster, results are stored, and sums handed
    on.
    """
    rates, sms = work.rates, work.target.num_sms
    if work.plain:
        least = start_cycles(rates, has_products=False)
        return least, least, least
    tiles, products, loaded, stored, sums = work.least(tile)
    if work.target.has_tensor_memory and products:
        # Neither is more than twice what it is of a pair.
        products, loaded = products / 2, loaded / 2
    products *= power(rates, loaded / max(1.0, products))
    tiles = max(1, tiles)
    waves = -(-tiles // sms)
    share = min(1.0, tiles / (waves * sms))
    waves = tiles / sms if any(work.triangles) else waves
    gain = rates.l2_multicast_2_bytes / rates.l2_bytes
    gain = best_gain(rates) if waves == 1 or schedule.cluster else max(1.0, gain)
    loading = loaded / l2_bytes(rates, share)
    results = crowding(rates, share) * stored / rates.l2_tma_store_bytes
    pace = clock_pace(rates, share if products else 0.0)
    whole = waves * larger(products * pace, loading / gain) + results
    turns = waves > 1 and schedule.mode == "pingpong"
    start, turn = start_cycles(rates, products > 0), 2 * rates.mbarrier_cycles
    whole += waves * turn if turns else (waves - 1) * results
    least = work.least_memory_cycles
    cut = max(tiles * larger(products, loaded / rates.l2_bytes) / sms, least)
    cut += rates.hand_over_cycles + SUM_BYTES * sums / rates.l2_store_bytes
    most = next((n for n in SHARING if tiles <= work.target.cluster_room(n)), 1)
    share = min(1.0, most * tiles / sms)
    pace = clock_pace(rates, share if products else 0.0)
    shared = max(larger(products * pace, loaded / l2_bytes(rates, share)) / most, least)
    shared += rates.cluster_exchange_cycles + SUM_BYTES * sums / rates.cluster_send_bytes
    return start + max(whole, least), start + cut, start + shared
