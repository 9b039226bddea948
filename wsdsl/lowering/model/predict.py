"""How long a schedule takes, as far as it can be told from waves, tiles and bytes.

The tensor cores are busy for as long as the products take, unless the operands do not come in that
time (`loading`); and moving them costs power, so that the clock is lower the more there is
to move, as long as the products are what takes the time.
Cooperating consumers compute and write a tile's results while the tensor cores wait; those who take
turns do so beside the other's products, but for the last tile: these are slower for it, and wait
where it takes longer than they. All SMs take the same number of tiles: the last
wave counts like a full one. And no kernel is quicker than its tensors are read and written once.

Where tiles are cut, what counts is the worker that has most steps of the contraction; the sums that
are handed on come on top (`handing`).

The constants here are fitted to bf16 products of 18 shapes by 20 tiles on an H200, to the mean of
short bursts and sustained runs: the error is 4 %, and what is chosen is within 1 % of the best.
`tools/fit_model.py` tells how far they are from other measurements, and refits those of idle SMs
and of tiles in pieces.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from wsdsl.ir.overlap_rules import MOST_ALIKE
from wsdsl.ir.target import Target
from wsdsl.ir.tile_scheduler import tile_scheduler
from wsdsl.ir.types import Axis
from wsdsl.lowering.cooperation import (
    cluster_along,
    cluster_size,
    cluster_splits_beside,
    num_cooperating,
)
from wsdsl.lowering.model.busiest import Busiest, busiest
from wsdsl.lowering.model.clusters import (
    cold_share,
    drift,
    gain_of,
    starting_cycles,
)
from wsdsl.lowering.model.loading import (
    NARROW,
    NEARLY_NARROW,
    apart_cycles,
    is_narrow,
    loading_cycles,
    memory_cycles,
)
from wsdsl.lowering.model.split_k_cost import (
    exchange_cycles,
    least_split_k_cycles,
    results_share,
    split_k_cycles,
)
from wsdsl.lowering.model.workload import Work, Workload
from wsdsl.schedule import Schedule

POWER = 0.002
"""Slower by this much for each byte a cycle and SM ..."""
MOST_BYTES = 70.0
"""... up to so many: 64 x 240 (81 of them) would else be taken for 4 % slower than it is, at 1024 x
7872 and 5760, K = 1024 to 16384."""
BOOST = 0.3
"""The power that idle SMs leave makes the clock of the others quicker: the time of a share of `s`
busy is `s` to this power ...
"""
QUICKEST = 0.8
"""... but no less than that: the clock has a limit too."""
STORE_CYCLES = 14.2 / 128
"""Cycles for an element of the results."""
TRANSPOSE_CYCLES = 0.012
"""More for one that is transposed on its way. 4096 x 4096 x 512 takes 26.8 us by 128 x 128 in
ping-pong either way, by 128 x 256 31.2, by 256 x 128 with columns on wgmma's M 31.8; 1024 x 1024 x
1024 by 64 x 128 of one consumer 5.4 and 5.5. In ping-pong the other's products hide it in part: it
counts as the rest of the results."""
SPLIT_CYCLES = 5.0
"""For a row of the results that begins amid a sector. At 1024 x (2688 to 5760) x 4096, 4096 x 8192
x 1024 and 8192 x 8192 x 512, bf16 tiles of 128 rows and 152 to 248 columns that 16 does not divide
take 500 to 800 cycles longer than others, and those of 64 x 120 500.
"""
ISSUED = 128.0
"""Instructions a cycle and SM, of single threads."""
BESIDE = 2.0
"""By how much longer results take, computed and written, beside another's products ..."""
SHORT_TURNS = 0.3
"""PingPong whose results take longer than their products are slower for the share of that, ..."""
BURSTS = 0.1 / 128**2
"""... results of cooperating consumers for each element of a tile beyond 128 x 128, since what
moves then comes in bursts, ..."""
UNFILLED = 3.0
"""... and lines that a tile does not fill count as if it did, at a third of that share or more. Of
30 bf16 and fp8 products with K of 16 to 128, whose epilogues only store, 128 x 128 is the best in
the mean, 128 x 192 1 % behind, 128 x 256 4, 256 x 128 9, ping-pong 1 to 15 %: 32 x 4096 x 4096 x
128 takes 319 us, by 128 x 192 in ping-pong 370; 8192 x 8192 x 128 42.8 by 128 x 128, 51.1 by 128 x
144, and 64 deep 36.3 and 43.8 by 128 x 80. With K = 256 ping-pong is 5 to 35 % quicker. Where there
is more to compute (gelu, bias and residual) others are better, and these count for less.
"""
DELAY = 0.95
"""... and the share of their computing by which the products take longer. Short bursts lose half of
it, sustained runs all: power is the limit, and computing takes its part at any time. Measured with
gelu, bias and residual, K = 1024 to 8192 (4096 x 10240 x 8192, to the plain product: 0.98 in both
by 128 x 256, 1.01 and 0.94 by 128 x 160 in ping-pong).
"""
SMEM_BYTES = 156.0
"""A cycle, that come to SMEM and that products read there, in tiles of several waves; one wave's
constants are fitted without it. 5832 x 4544 x 18176 takes 1570 us by ten waves of 256 x 80, which
move 182, and 1440 by seven of 128 x 232, 132; 4096 x 4304 x 4096 219 by 128 x 96 and 198 by 128 x
184. Up to 165 of them nothing is slower.
"""
ASTRAY = {"split_k": 1.07, "stream_k": 1.2}
"""By how much longer operands take to come to pieces that hand on their sums: CTAs that want the
same do so at different times. 256 x 1024 to 4608 x 3584 to 14336 and 1024 x 576 x 16384, 64 rows.
PingPong of narrow tiles take as much longer, on top, as one wave of whole ones does (`gain_of`): 87
schedules of 45 shapes are off by 4.1 % so, and by 5.4 % without.
"""
TURN_CYCLES = 620.0
"""For each tile of consumers in ping-pong, until the tensor cores, handed on, are busy with the
next one, ...
"""
UNHANDED = 0.6
"""... but the last: 1024 x 3648 x 1024 takes 13.3 us by two tiles of 128 x 112 for each SM, 13.8 by
one of 256 x 112, 1024 x 2880 11.4 by 128 x 96 and 11.7 by 128 x 192. Of the sweep with K = 1024
what is chosen is 0.4 instead of 1.0 % behind the best of ten; with 0.8, 64 x 176 is taken, which
loses 4 % in sustained runs.
"""
START_CYCLES = 2400.0
"""From the launch to the first step of a tile, whatever the kernel: setting up, and waiting for the
first operands. Both are fitted with the rest, this one again to contests of narrow tiles.
"""
PROMOTED_CYCLES = 60.0
"""From the end of a product that is read at once, to be added by other instructions, to the next of
the same warpgroup: fitted to fp8 products of 4096 to 57344 columns by 13 tiles.
"""
MORE_PROMOTED_CYCLES = 0.45
"""For each column of a further block of 64 rows that a consumer has: 42 fp8 products of 64 to 8192
rows, by one block and by two."""
MORE_SCALED_CYCLES = 28.0
"""For each such block where products are scaled."""
UNCOVERED_CYCLES = 240.0
"""The same, less what the other consumers' products hide, where each consumer has one block, or one
has several, and they go on to further tiles: 777 x 3072 x 2048 takes 11.6 us by 72 x 128, swapped,
and 10.5 by 72 x 256. 25 shapes whose default has changed so are 1.06 times as quick.
"""
FURTHER_PART_CYCLES = 28.0
"""For each further part of a product (`schedule_products`)."""
WIDE_ALONE = 64
"""A single consumer, as no other one's products hide its waits, takes a cycle more for each column
beyond these: fp8 products of 64 x 64 to 64 x 128, by 256 of the contraction, of 128 and 256 rows.
"""
SHARED_BY_THREE = 0.85
"""The results of promoted sums, which are not in the tensor cores, take that much less by three
consumers, each of whom has 64 columns of 128 and not 96 of 192: 28 contests of fp8 products, with
and without scales, K = 256 to 4096, want 0.69 to 0.95. 8192 x 8192 x 512 takes 67.4 us by 192 x
128, 74.3 by 128 x 192; 4096 x 8192 x 384 26.1 and 29.5 (128 x 144). Transposed ones gain nothing.
"""
SCALED_BY_FEW = 45.0
"""More, where products are scaled and but one other consumer has the tensor cores in that
time: 8192 x 8192 x 8192 takes 875 us by 192 x 128 of three, 931 by 128 x 192 and 980 by 256 x
128 of two.
"""
PIECES_MEMORY, TURNS_MEMORY = 1.08, 1.1
"""By how much longer what comes from memory takes to come to pieces of tiles, and to whole tiles
that follow each other: 96 x 5120 x 25600 takes 83 us by two slices of 128 x 80, 71 by pairs of 64 x
80, 192 x 12288 x 12288 121 by 64 x 144 in ping-pong, 105 by 192 x 128 and stream-K. Fitted to 310
schedules of 43 bf16 products of 65 to 300 rows.
"""
SOFTNESS, THIN_SOFTNESS = 4, 8
"""How sharply the longer of loading and memory is all that counts (`ASKED_AGAIN`)."""
L2_HOLDS = 0.8
"""The share of L2 that tensors stay in."""
LOST_REUSE = 0.12
"""Slower by this much are steps of runs longer than a tile where L2 does not hold the tensors:
workers stand at different places of the contraction, and share nothing.
"""


@dataclass(frozen=True)
class Prediction:
    """`cycles` in all, and what they are made of: those of a whole tile's products and results (of
    a CTA's part, where several share it), and of handing on sums.
    """

    cycles: float
    tile: Workload
    work: Busiest
    mainloop: float
    epilogue: float
    handing: float = 0.0
    stretch: float = 1.0
    """By how much longer steps and results take for memory, or shorter for what idle SMs leave."""
    lost: float = 0.0
    """By how much longer the steps of tiles that are cut take than those of others."""
    memory_bound: bool = False
    """Whether it is memory that takes longest."""
    gain: float = 1.0
    """By how much quicker operands come, as CTAs of a cluster lie in one GPC."""
    sharing: int = 1
    """CTAs of a cluster that share the contraction of a tile; `tile` is what each has of it."""

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
        return self.tile.target.microseconds(self.cycles)


def predict(work: Work, schedule: Schedule, tile: Mapping[str, int]) -> Prediction:
    """`tile`: elements of a tile along every axis under the schedule."""
    cluster = clustered(work, schedule)
    asked = work.under(tile, cluster, {} if schedule.multicast is False else cluster)
    sharing = cluster_splits_beside(schedule, (loop.index for loop in work.nest))
    if sharing > 1:
        return predicted(shared_out(asked, sharing), schedule, sharing=sharing)
    pieces = num_pieces(asked, schedule)
    target = work.target
    at_once = is_one_wave(target, pieces) and target.run_at_once(pieces, cluster_size(schedule))
    # Slices begin together, and share what they load; stream-K is fitted by `ASTRAY` alone.
    apart = schedule.scheduler == "stream_k" or schedule.reduction == "parallel"
    known = work.sized and not asked.thin and not apart
    if not (known and at_once and is_narrow(asked, NEARLY_NARROW)):
        return predicted(asked, schedule)
    if not schedule.cuts_tiles:
        cold = asked.cold_bytes * cold_share(work, schedule, tile)
        asked = dataclasses.replace(asked, cold_bytes=cold)
    narrow = schedule.cuts_tiles or is_narrow(asked)
    gain = gain_of(work, schedule, tile, asked.slot_bytes, narrow)
    gain /= drift(asked.depth * asked.tiles // pieces)
    return predicted(asked, schedule, gain, starting_cycles(work, schedule))


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
    overlapping = sharing <= MOST_ALIKE
    beyond = asked.overhang_bytes if overlapping else asked.overhang_bytes_cut
    return dataclasses.replace(
        asked,
        tiles=asked.tiles * sharing,
        depth=-(-asked.depth // sharing),
        product_cycles=asked.product_cycles * part,
        operations=int(asked.operations * part),
        operand_bytes=asked.operand_bytes * part,
        promoted=int(asked.promoted * part),
        further_parts=int(asked.further_parts * part),
        overhang_bytes=beyond * part,
        own_bytes=asked.own_bytes * part,
        stored_elements=asked.stored_elements / sharing,
        transposed_elements=asked.transposed_elements / sharing,
        computed=asked.computed / sharing,
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
    asked: Workload,
    schedule: Schedule,
    gain: float = 1.0,
    starting: float = 0.0,
    sharing: int = 1,
) -> Prediction:
    """`gain`: by how much quicker operands come; `starting`: cycles that the start takes longer;
    `sharing`: CTAs of a cluster that share the contraction of a tile.
    """
    target, cluster = asked.target, cluster_size(schedule)
    scheduler = tile_scheduler(schedule.scheduler or "", schedule.splits or 1)
    depth = max(1, asked.depth) if scheduler.splits_tiles else 1
    work = busiest(scheduler, -(-asked.tiles // cluster), depth, target.cluster_room(cluster))
    power = 1 + POWER * min(asked.bytes_per_cycle, MOST_BYTES)
    promoting = _promoting(asked, schedule, work.iterations > 1) if asked.promoted else 0.0
    if sharing > 1:
        loading = _larger(*apart_cycles(asked), 4)
    else:
        loading = loading_cycles(asked, scheduler.splits_tiles)
    if schedule.cuts_tiles and schedule.reduction != "parallel":
        loading *= ASTRAY[schedule.scheduler or ""]
    elif work.iterations > 1:
        loading = max(loading, (asked.operand_bytes + asked.read_bytes) / SMEM_BYTES)
    mainloop = _larger((asked.product_cycles + promoting) * power, loading / gain, 24)
    computing = asked.computed / ISSUED
    splitting = asked.split_rows * SPLIT_CYCLES
    storing = asked.stored_elements * STORE_CYCLES
    longer = _longer(mainloop, storing, computing) if work.iterations > 1 else 0.0
    unfilled = asked.unfilled_elements * STORE_CYCLES * min(1.0, UNFILLED * longer)
    epilogue = storing + unfilled + splitting + computing
    epilogue += asked.transposed_elements * TRANSPOSE_CYCLES
    if schedule.consumers == 3 and asked.promoted and not asked.scaled:
        epilogue *= 1.0 if asked.transposed_elements else SHARED_BY_THREE
    share = min(1.0, asked.tiles * depth / (work.steps * target.num_sms))
    cycles = work.steps * (mainloop / depth)
    long = work.cut_steps > depth and asked.tensor_bytes > L2_HOLDS * target.l2_bytes
    lost = LOST_REUSE if long else 0.0
    cycles += lost * work.cut_steps * (mainloop / depth)
    results = epilogue * results_share(asked, schedule)
    if schedule.mode == "pingpong" and work.iterations > 1:
        waiting = max(0.0, BESIDE * epilogue - mainloop) / 2
        cycles += work.iterations * (splitting + DELAY * computing + waiting) + results
        cycles += (work.iterations - UNHANDED) * TURN_CYCLES
        cycles *= 1 + SHORT_TURNS * longer
    else:
        beyond = max(0.0, asked.stored_elements - 128**2)
        cycles += work.finished * results * (1 + BURSTS * longer * beyond)
    whole_turns = 0 if scheduler.splits_tiles else work.iterations
    memory = memory_cycles(asked, max(share, 1e-9), whole_turns)
    quicker = max(QUICKEST, share**BOOST)
    busy = cycles * quicker + START_CYCLES + starting
    if not asked.thin and schedule.scheduler == "split_k":
        memory *= PIECES_MEMORY
    elif not asked.thin and not schedule.cuts_tiles and work.iterations > 1:
        memory *= TURNS_MEMORY
    bounded = _larger(busy, memory, THIN_SOFTNESS if asked.thin else SOFTNESS)
    handing = split_k_cycles(asked, schedule, work) + exchange_cycles(asked, work, sharing)
    stretch = (bounded - START_CYCLES) / max(1.0, cycles)
    own = work, mainloop, epilogue, handing, stretch, lost
    bound = memory > busy
    return Prediction(bounded + handing, asked, *own, bound, gain, sharing)


def _longer(mainloop: float, storing: float, computing: float) -> float:
    """The share of the time of results for which no product runs meanwhile: less of those that take
    as long to compute as to store, 0 from half of it on.
    """
    shorter = max(0.0, 1 - mainloop / max(1.0, storing))
    return shorter * max(0.0, 1 - 2 * computing / max(1.0, storing))


def _promoting(asked: Workload, schedule: Schedule, goes_on: bool) -> float:
    """Cycles for all products that are read at once."""
    blocks = asked.rows // (64 * num_cooperating(schedule))
    scaled = SCALED_BY_FEW if asked.scaled and (schedule.consumers or 1) < 3 else 0.0
    alone = max(0, asked.columns - WIDE_ALONE) if schedule.consumers == 1 else 0
    further = MORE_SCALED_CYCLES if asked.scaled else MORE_PROMOTED_CYCLES * asked.columns
    promoting = PROMOTED_CYCLES + max(0, blocks - 1) * further
    consumers = schedule.consumers or 1
    if goes_on and min(blocks, consumers) == 1 < max(blocks, consumers) and not asked.scaled:
        own = asked.product_cycles / (asked.promoted + asked.further_parts) / consumers
        promoting = max(promoting, UNCOVERED_CYCLES - (consumers - 1) * own)
    each = promoting + scaled + alone
    return asked.promoted * each + asked.further_parts * FURTHER_PART_CYCLES


def memory_share(own: Prediction) -> float:
    """Of the time, what it takes to read and write the tensors once."""
    return memory_cycles(own.tile, 1.0) / own.cycles


def least_cycles(tile: Prediction) -> float:
    """What no way of cutting such tiles can do better than: all SMs busy from the first step to the
    last, and handing on the sums once.
    """
    asked = tile.tile
    steps = tile.mainloop * asked.tiles / asked.target.num_sms + START_CYCLES
    return max(steps, memory_cycles(asked, 1.0)) + least_split_k_cycles(asked)


def _larger(a: float, b: float, softness: float) -> float:
    """The larger of two, and a little more where they are close."""
    top = max(a, b, 1.0)
    return top * ((a / top) ** softness + (b / top) ** softness) ** (1 / softness)
