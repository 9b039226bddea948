"""How quickly operands come, and how far loads run ahead.

Constants are of an H200, fitted with those of `predict`.
"""

from __future__ import annotations

from wsdsl.lowering.cooperation import cluster_size
from wsdsl.lowering.model.workload import Workload
from wsdsl.schedule import Schedule

L2_BYTES = 80.5
"""Bytes a cycle and SM that operands can come at."""
READ_SHARE = 0.23
"""Of the bytes that products read of SMEM beyond those that are loaded, so many slow loads down:
two consumers of 128 x 64 read the columns twice, and take 1.1 to 1.2 times as long at 1024 x 960 x
16384 as one of 64 x 128.
"""
OVERHANG = 0.5
"""Bytes of a load beyond the end of a tensor cost so much more than others. While all last tiles
had some, 1024 x 1536 x 16384 by 64 x 208 took 116 us, and 79 with 1664 columns; 1024 x 576 x 4096
by 64 x 80 17.1 us, and 11.9 with 640 (which is 1; over all tiles of the sweeps 0.5 tells most).
"""
COLD = 0.25
"""Bytes of a tensor that all others are small beside cost so much more, since they come from memory
while several wait for them: 128 x 8192 x 2048 takes 11.3 us by 128 x 64, 12.8 by 64 x 128; 256 x
6400 x 1600 11.2 by 128 x 104, 12.2 by 64 x 200.
"""
IMBALANCE = 0.2
"""Of the memory's bandwidth, SMs without a tile leave some to the others: with a share of `s` busy
these get `s` to this power (1: only their own; 0: all of it). 144 x 12288 x 4096 takes 31.1 us by
96 tiles of 144 x 128, 96 x 18432 x 7168 68.2 by 96 of 96 x 192.
"""
ASKED_AGAIN = 0.1
"""Longer by this much for each time more than once that tiles ask for what comes from memory: 144 x
12288 x 4096 takes 34.5 us by 128 tiles of 72 x 192. This, `IMBALANCE`, `ALL_BEYOND` and `SOFTNESS`
are fitted to 590 schedules of 180 bf16 products of 72 to 960 rows of big weights: the error is 2.7
%, and what is chosen 1.0 % behind the best in the mean.
"""
THIN_START = 3600.0
"""Of thin products, apart from their bytes; this and what follows is fitted to 550 schedules of 50
bf16 and fp8 products of 1 to 64 rows, with an error of 3.5 %: what is chosen is 0.7 % behind the
best in the mean. 16 rows of 4096 x 4096 take 10.2 us, 4096 x 14336 28.7, 8192 x 28672 107.0.
"""
REREAD = 0.04
"""Longer by this much for as many bytes as the tensors have that come more than once, from L2."""
THIN_IMBALANCE = 0.05
"""As `IMBALANCE`."""
LESS_OF_LINES = 1.02
"""Longer by this much where less than `ROW_BYTES` of a row are asked for at once."""
ROW_BYTES = 256
ROUNDS_CYCLES = 1500.0
"""More where there are several rounds of tiles ..."""
UNEVEN = 0.13
"""... and this much of a tile's time for the share of SMs that have nothing in the last: 16 x 28672
x 8192 takes 108.2 us by 224 tiles, 107.3 by 448; 10240 x 8192 42.4 by 160, 40.9 by 80.
"""
HIDDEN_MICROSECONDS = 0.7
"""Where the next kernel is let start before this one is over, it loads by so much sooner: 0.7 us
after the last CTA, not 1.4."""
CROWDED = 0.4
"""Where it is, longer by this much for the share of SMs that have no tile, if most have one (see
`kernel_overlap`): 16 x 6144 x 4096 by 96 tiles 16.1 instead of 14.8 us, 16 x 10240 x 8192 by 80
56.9 instead of 42.1, 32 x 7168 x 18432 by 112 67.6 instead of 63.7. But 64 x 4096 x 4096 by 64
tiles takes 11.2 us, and 11.8 without.
"""
TAKEN_BYTES = 68.0
"""Bytes a cycle that come to a CTA which shares a contraction."""
OWN_BYTES = 5280.0
"""Bytes a cycle that come to all such, of those that nobody else has asked for at the same time.
Both are fitted to 300 schedules of 100 shapes on an H200, M of 1 to 2048, N of 192 to 8192, K of
1024 to 16384: 8 % beside what was measured; what is chosen is 0.9 % behind the best in the mean.
"""
DRIFT_STEPS = 900.0
"""After so many steps they have drifted apart so far that loading takes twice as long: 1024 x 768 x
16384 by 128 x 96 in two takes 47.4 us, in two one after another 39.9; with K = 4096 13.0 and 14.2.
"""
ALONE_BYTES = 111.0
"""Bytes a cycle that a CTA's operands can come at while few have any: 16 rows of 1280 x 8192 take
9.4 us by 20 CTAs, 2560 x 10240 15.0 by 40, but 18432 x 7168 68.9 by 144, and 62.9 by 288.
"""
LOOKAHEAD = 3072
"""Cycles of the tensor cores by which loads run ahead. Less starves them (128 x 192 with 3 stages:
0.85 of 4), and more costs 1 to 2 % in sustained runs (128 x 256 with 4 stages, not 3).
Consumers with several blocks of rows come to the end of a slot later, and have one more (256 x 128
with 4 stages, not 3: 1.005 to 1.01).
"""
MAX_STAGES = 8
"""Slots of a ring, at the most."""
NARROW_ROWS = 128
"""Of a tile, at the most, for what follows: taller ones want the rings of `LOOKAHEAD`."""
NEARLY_NARROW = 0.85
"""Where loading takes so much of the products' time, it may take longer than they when all SMs load
at once."""
NARROW = 1.095
"""Where loading takes longer than products by so much, and all tiles run at the same time, on most
SMs, what counts is how much is under way: ...
"""
RING_BYTES = 170 << 10
"""... with less the ring runs dry, and with more CTAs that load the same do so at different times.
1024 x 384 x 4096 by 64 x 64 takes 10.2, 9.6, 9.5 and 9.9 us with 8, 10, 12 and 13 slots, 1024 x
960 x 4096 by 64 x 128 15.8, 15.5 and 16.5 with 6, 7 and 8, and 1024 x 1152 x 4096 by 64 x 144 18.4,
17.0, 17.9 and 19.9 with 5, 6, 7 and 8; in pieces, serial, 1024 x 576 x 16384 by 64 x 144
39.2 and 35.3 with 8 and 6, 512 x 576 x 7168 by 64 x 72 14.5 and 13.0 with 12 and 9.
"""
PAIR_RING_BYTES = 194 << 10
"""The same for pairs of CTAs (64 x 144: 17.2 with 6, 16.7 with 7); more take all they get. Of those
that share a contraction nothing else is known."""
LEAST_STAGES = 3
"""Where loading is the limit, whatever bytes a slot has."""
FEW_SLOTS = 4
"""Of no more, one counts for much, so that the number is rounded: fp8 of 768 x 1536 x 4096 by 128 x
72, 256 deep, takes 10.9 us with 4 slots, in pairs with 3 11.7."""
MAX_STAGES_NARROW = 12
MAX_STAGES_SLICES = 12
"""The same for slices, whose CTAs begin together: 256 x 256 x 65536 in 8 slices of 64 x 64
tiles takes 26.4 us with 8 slots, 24.2 with 12, and 24.9 with 6 that are 128 deep along k; 128 x 128
x 131072 in 16 of 64 x 32 tiles 25.1, 23.4 and 23.4, with 16 slots 23.9.
"""


MAX_STAGES_FEW = 20
"""The same of few columns: a slot has few bytes, and memory is the limit (16 x 10240 x 8192 by 64 x
16 tiles, swapped: 45.8 us with 10 slots, 44.9 with 20; 64 x 4096 x 4096: 12.4 with 8, 11.2 with
12).
"""


def loading_cycles(asked: Workload, cut: bool = False) -> float:
    """In which a tile's operands can come."""
    moved = _moved_bytes(asked) + COLD * asked.cold_bytes
    beyond = asked.overhang_bytes_cut if cut else asked.overhang_bytes
    return (moved + OVERHANG * beyond) / L2_BYTES


def _moved_bytes(asked: Workload) -> float:
    return asked.operand_bytes + READ_SHARE * (asked.read_bytes - asked.operand_bytes)


def apart_cycles(asked: Workload) -> tuple[float, float]:
    """The same for CTAs of a cluster that share a contraction, which lie in one GPC and have no
    tile in common: by what an SM can take, and by what comes from L2 to all.
    """
    beyond, drift = OVERHANG * asked.overhang_bytes, 1 + asked.depth / DRIFT_STEPS
    taken = (asked.operand_bytes + beyond) / TAKEN_BYTES
    return taken * drift, asked.tiles * (asked.own_bytes + beyond) / OWN_BYTES * drift


def memory_cycles(asked: Workload, share: float, turns: int = 0) -> float:
    """In which the tensors are read and written once, by SMs that have `share` of the steps of the
    busiest one in the mean. It has `turns` tiles, if none is cut.
    """
    least = asked.tensor_bytes / asked.target.memory_bytes
    if not asked.thin or not least:
        again = max(0.0, asked.tiles * asked.cold_bytes / max(1.0, asked.tensor_bytes) - 1)
        return least / share**IMBALANCE * (1 + ASKED_AGAIN * again)
    least *= 1 + REREAD * (asked.tiles * asked.operand_bytes / asked.tensor_bytes - 1)
    if asked.row_bytes < ROW_BYTES:
        least *= LESS_OF_LINES
    if not turns:
        return THIN_START + least
    each, more = least / (share * turns), 0.0
    if turns > 1:
        more = ROUNDS_CYCLES + UNEVEN * (1 - share) * each
    else:
        least /= share**THIN_IMBALANCE
        if share > 1 / 2:
            hidden = HIDDEN_MICROSECONDS * 1000 * asked.target.clock
            more = min(hidden, CROWDED * (1 - share) * least)
    alone = asked.operand_bytes / ALONE_BYTES - (least - (turns - 1) * each)
    return THIN_START + least + max(0.0, alone) + more


def is_narrow(asked: Workload, least: float = NARROW) -> bool:
    """Whether to bring operands takes longer than products by so much, all else apart; not so where
    consumers have several blocks of rows, which want deep rings.
    """
    slow = _moved_bytes(asked) / L2_BYTES > least * asked.product_cycles
    return slow and asked.rows <= NARROW_ROWS


def most_stages(asked: Workload, schedule: Schedule, narrow: bool, slot_bytes: int) -> int:
    """`narrow`: loading is the limit, and all tiles run at the same time."""
    if asked.few_columns:
        return MAX_STAGES_FEW
    if schedule.reduction == "parallel":
        return MAX_STAGES_SLICES
    if schedule.cuts_tiles:
        narrow = loading_cycles(asked, cut=True) > asked.product_cycles
    if not narrow:
        return MAX_STAGES
    cluster = cluster_size(schedule)
    if cluster > 2:
        return MAX_STAGES_NARROW
    ring_bytes = RING_BYTES if cluster == 1 else PAIR_RING_BYTES
    fitting = ring_bytes / max(1, slot_bytes)
    whole = int(fitting) if fitting > FEW_SLOTS else round(fitting)
    return min(MAX_STAGES_NARROW, max(LEAST_STAGES, whole))
