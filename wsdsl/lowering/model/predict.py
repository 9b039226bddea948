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

from wsdsl.ir.target import Target
from wsdsl.ir.tile_scheduler import tile_scheduler
from wsdsl.ir.types import Axis
from wsdsl.lowering.cooperation import (
    cluster_along,
    cluster_size,
    cluster_splits_beside,
    num_cooperating,
    num_pingpong_consumers,
)
from wsdsl.lowering.model.busiest import Busiest, busiest, unevenness
from wsdsl.lowering.model.loading import (
    NARROW,
    best_gain,
    gain_of,
    is_narrow,
    larger,
    memory_cycles,
    ring_cycles,
)
from wsdsl.lowering.model.numbers import (
    ALONE_COLUMN_CYCLES,
    ASTRAY,
    BESIDE,
    BYTES_AT_WORST,
    COLD,
    DIRECT_WAITS,
    FEW_EXPONENT,
    FURTHER_CYCLES,
    FURTHER_SCALED_CYCLES,
    ISSUE_PER_WARP,
    POWER_EXPONENT,
    PROMOTED_CYCLES,
    SCALED_CYCLES,
    SHARPNESS,
    START_CYCLES,
    STORE_BYTES,
    TURN_CYCLES,
    WIDE_ALONE,
)
from wsdsl.lowering.model.split_k_cost import (
    exchange_cycles,
    least_split_k_cycles,
    results_share,
    split_k_cycles,
)
from wsdsl.lowering.model.steps import Step, Workload
from wsdsl.lowering.model.workload import Work
from wsdsl.rates import Rates
from wsdsl.schedule import Schedule


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
    """By how much longer, or shorter, an SM takes for all that it does, as few of them are busy."""
    reach: float = 1.0
    """By how much quicker operands come than L2 brings them to all SMs."""

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
    """`tile`: elements of a tile along every axis under the schedule."""
    cluster = clustered(work, schedule)
    asked = work.under(tile, cluster, {} if schedule.multicast is False else cluster)
    sharing = cluster_splits_beside(schedule, (loop.index for loop in work.nest))
    if sharing > 1:
        return predicted(shared_out(asked, sharing), schedule, sharing=sharing)
    at_once = is_one_wave(work.target, num_pieces(asked, schedule))
    return predicted(asked, schedule, gain_of(asked, schedule, at_once=at_once))


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


def is_one_wave(target: Target, pieces: int) -> bool:
    """Whether most SMs have one, and no SM two."""
    return target.num_sms / 2 < pieces <= target.num_sms


def is_narrow_wave(asked: Workload, least: float = NARROW) -> bool:
    """The same of whole tiles, where to load operands is the limit."""
    return is_one_wave(asked.target, asked.tiles) and is_narrow(asked, least)


def predicted(
    asked: Workload, schedule: Schedule, gain: float = 1.0, sharing: int = 1
) -> Prediction:
    """`gain`: by how much quicker operands come; `sharing`: CTAs of a cluster that share the
    contraction of a tile.
    """
    target, cluster = asked.target, cluster_size(schedule)
    scheduler = tile_scheduler(schedule.scheduler or "", schedule.splits or 1)
    depth = max(1, asked.depth) if scheduler.splits_tiles else 1
    work = busiest(scheduler, -(-asked.tiles // cluster), depth, target.cluster_room(cluster))
    share = min(1.0, asked.tiles * depth / (work.steps * target.num_sms))
    alone = asked.rates.l2_one_bytes / asked.rates.l2_bytes
    few = min(alone, share**-FEW_EXPONENT) if share else alone
    mainloop, epilogue = tile_cycles(asked, schedule, gain * few)
    cycles = work.steps * (mainloop / depth)
    if asked.uneven > 1 and schedule.scheduler != "grid":
        cycles *= unevenness(asked.tiles, work.workers, asked.uneven)
    results = epilogue * results_share(asked, schedule)
    if num_pingpong_consumers(schedule) > 1 and work.iterations > 1:
        beside = max(TURN_CYCLES, (BESIDE * epilogue - mainloop) / 2)
        cycles += work.iterations * beside + results
    else:
        cycles += work.finished * results
    quicker = max(asked.clock / asked.rates.clock, share**POWER_EXPONENT)
    busy = cycles * quicker + START_CYCLES
    memory = memory_cycles(asked)
    bounded = larger(busy, memory + START_CYCLES)
    handing = split_k_cycles(asked, schedule, work) + exchange_cycles(asked, work, sharing)
    return Prediction(
        cycles=bounded + handing,
        tile=asked,
        work=work,
        mainloop=mainloop,
        epilogue=epilogue,
        handing=handing,
        memory=memory,
        stretch=(bounded - START_CYCLES) / max(1.0, cycles),
        gain=gain,
        sharing=sharing,
        memory_bound=memory + START_CYCLES > busy,
        pace=quicker,
        reach=gain * few,
    )


def tile_cycles(asked: Workload, schedule: Schedule, gain: float = 1.0) -> tuple[float, float]:
    """Of a tile's loops, and of what stands outside of them."""
    power = power_of(asked)
    promoting = (
        _promoting(asked, schedule) / sum(s.times for s in asked.steps if s.tensor)
        if asked.promoted
        else 0.0
    )
    mainloop = epilogue = 0.0
    for step in asked.steps:
        cycles = interval(asked, schedule, step, power, promoting if step.tensor else 0.0, gain)
        if step.in_loop:
            mainloop += step.times * cycles
        else:
            epilogue += cycles
    return mainloop, epilogue


def power_of(asked: Workload) -> float:
    return power(asked.rates, asked.bytes_per_cycle)


def power(rates: Rates, bytes_per_cycle: float) -> float:
    """By how much longer products take, as the clock is lower the more there is to move."""
    moved = min(1.0, bytes_per_cycle / BYTES_AT_WORST)
    return 1 + (rates.tensor_smem_clock / rates.tensor_l2_clock - 1) * moved


def interval(
    asked: Workload,
    schedule: Schedule,
    step: Step,
    power: float,
    promoting: float,
    gain: float,
) -> float:
    """Cycles from one iteration of a loop to the next, of all consumers of a tile."""
    rates, warps = asked.rates, num_cooperating(schedule)
    # A chain that nothing runs beside is made of elements that do not wait for each other.
    alone = step.chained and warps == 1
    is_serial = step.in_loop and not alone
    lanes = rates.fma_lanes * (min(1.0, ISSUE_PER_WARP * warps) if is_serial else 1.0)
    computing = step.instructions / lanes
    # TMA fills slots while products read others.
    smem = (step.read + rates.smem_fill_sharing * step.loaded) / rates.tensor_smem_bytes
    tensor = (larger(step.tensor, smem, SHARPNESS) + promoting) * power if step.tensor else 0.0
    # A chain's products run beside what another consumer computes of its own, and so do other
    # consumers' where sums are promoted.
    beside = (step.chained and not alone) or (asked.promoted and tensor)
    busy = max(tensor, computing) if beside else tensor + computing
    if step.direct:
        busy += step.direct / rates.l2_load_bytes
        # Beside products it is asked for ahead.
        waits = DIRECT_WAITS * rates.dram_loaded_ns * asked.clock
        busy += 0.0 if asked.product_cycles else waits
    busy += step.stored / STORE_BYTES
    if not step.loaded:
        return busy
    slow = slowness(asked, schedule)
    cycles = larger(busy, step.loaded * slow / (rates.l2_bytes * gain), SHARPNESS)
    return (
        max(cycles, ring_cycles(asked, step, busy, schedule.stages)) if step.times > 1 else cycles
    )


def slowness(asked: Workload, schedule: Schedule) -> float:
    """By how much longer operands take, as they come from memory, or to CTAs out of step."""
    slow = 1 + COLD * asked.cold_bytes / max(1.0, asked.operand_bytes)
    apart = schedule.cuts_tiles and schedule.reduction != "parallel"
    return slow * (ASTRAY if apart or asked.shared_out else 1.0)


def _promoting(asked: Workload, schedule: Schedule) -> float:
    """Cycles for all products that are read at once."""
    blocks = asked.rows // (64 * num_cooperating(schedule))
    scaled = SCALED_CYCLES if asked.scaled and (schedule.consumers or 1) < 3 else 0.0
    alone = max(0, asked.columns - WIDE_ALONE) if schedule.consumers == 1 else 0
    further = FURTHER_SCALED_CYCLES if asked.scaled else FURTHER_CYCLES * asked.columns
    each = PROMOTED_CYCLES + max(0, blocks - 1) * further + scaled + alone * ALONE_COLUMN_CYCLES
    return asked.promoted * each + asked.further_parts * FURTHER_SCALED_CYCLES


def least_cycles(tile: Prediction) -> float:
    """What no way of cutting such tiles can do better than: all SMs busy from the first step to the
    last, and handing on the sums once.
    """
    asked = tile.tile
    steps = tile.mainloop * asked.tiles / asked.target.num_sms + START_CYCLES
    return max(steps, tile.memory) + least_split_k_cycles(asked)


def floors(work: Work, schedule: Schedule, tile: Mapping[str, int]) -> tuple[float, float]:
    """Cycles that no prediction of such tiles is below: where each has an SM to itself, and where
    several share them. Asks little: that products are made, operands come from L2 as quickly as
    they do to any cluster, and results are stored.
    """
    rates, sms = work.rates, work.target.num_sms
    tiles, products, loaded, stored = work.least(tile)
    products *= power(rates, loaded / max(1.0, products))
    tiles = max(1, tiles)
    waves = -(-tiles // sms)
    share = min(1.0, tiles / (waves * sms))
    waves = tiles / sms if any(work.triangles) else waves
    few = min(rates.l2_one_bytes / rates.l2_bytes, share**-FEW_EXPONENT)
    loading, results = loaded / rates.l2_bytes, stored / STORE_BYTES
    whole = waves * larger(products, loading / (best_gain(rates) * few), SHARPNESS) + results
    turns = waves > 1 and schedule.mode == "pingpong"
    whole += waves * TURN_CYCLES if turns else (waves - 1) * results
    quicker = max(rates.tensor_smem_clock / rates.clock, share**POWER_EXPONENT)
    shared = tiles * larger(products, loading, SHARPNESS) / sms
    least = START_CYCLES + work.least_memory_cycles
    return larger(START_CYCLES + whole * quicker, least), max(START_CYCLES + shared, least)
