"""Numbers of the model that are no rates of a card: how what limits a kernel adds up.

Each is measured: `benchmarks/predictions.py` holds the model against kernels of all kinds, and
tells what a change of one of them does. Rates of cards are in `wsdsl/rates`.
"""

from __future__ import annotations

SHARPNESS = 10.0
"""Of products and loading in one step: the exponent by which the longer of two is nearly all that
counts. They run beside each other, and each waits for the other a little."""
MEMORY_SHARPNESS = 5.0
"""The same of the SMs' own time and memory's, whose latencies add up more."""
POWER_EXPONENT = 0.27
"""Of the share of SMs that are busy, to which their time is proportional: power goes by the third
power of the clock, and what idle SMs leave makes the others quicker."""
FEW_EXPONENT = 0.1
"""Of the share of SMs that are busy, to which what L2 brings to one of them is inversely
proportional, up to what one alone has."""
BYTES_AT_WORST = 70.0
"""Bytes a cycle and SM that come from L2, from which on the clock is no lower for more."""
START_CYCLES = 3200.0
"""From the launch to the first product: setting up, and waiting for the first operands."""
STORE_BYTES = 19.0
"""A cycle and SM, of results: converted, put to SMEM and stored by TMA, with what waits for it."""
TURN_CYCLES = 380.0
"""Of a tile in ping-pong, until the tensor cores, handed over, are busy with the next one."""
ISSUE_PER_WARP = 0.36
"""Instructions a cycle that one warp of a scheduler issues of code in which each needs the one in
front of it; schedulers have as many warps as there are consumers."""
DIRECT_WAITS = 1.6
"""Latencies of loaded memory that an iteration of a kernel without products waits for: its threads
load, compute, and then load again."""
PROMOTED_CYCLES = 40.0
"""From the end of a product that other instructions add to the next one of the warpgroup."""
ALONE_COLUMN_CYCLES = 1.0
"""More, of a single consumer, for each column beyond 64: nobody covers the adding."""
FURTHER_CYCLES = 0.45
"""More, for each column of a further block of 64 rows that is promoted."""
SCALED_CYCLES = 45.0
"""More, where products are scaled and there are fewer than three consumers."""
FURTHER_SCALED_CYCLES = 28.0
"""More, for each further block of 64 rows that is scaled, and each part of a product."""
ASTRAY = 1.2
"""By how much longer operands take to come to workers of tiles that are cut: those that want the
same do so at different times."""
COLD = 0.07
"""More, of bytes of a tensor beside which all others are small: several wait while they come from
memory."""
AGAIN = 0.06
"""Longer by so much for each time more than once that tiles ask for what comes from memory."""
EXCHANGE_MORE_CYCLES = 36.0
"""Of an exchange of sums in a cluster, for each CTA beyond two."""
EXCHANGED_SHARE = 0.6
"""Of the rate at which SMs of a cluster store to each other, what sums come at that are read back
and added."""
MULTICAST_CROSSING = 1.25
"""By how much longer lines that cross those of L2 take where CTAs wait for each other's."""
COPIED, COPIED_SINGLY = 5.5, 10.0
"""By how much longer operands take that threads copy by words, and by single elements, than TMA."""
BESIDE = 2.5
"""By how much longer results take, computed and written, beside another's products."""
WIDE_ALONE = 64
"""Columns whose adding the next product covers."""
LOOKAHEAD = 3072.0
"""Cycles of the tensor cores by which loads run ahead of products. Less starves them; more holds
SMEM that results could use, and lets CTAs that want the same drift apart."""
RING_BYTES = 170 << 10
"""Of slots, at the most, where loading is the limit and all tiles run at the same time: with more
under way, CTAs that load the same do so at different times."""
CROWDED = 0.4
"""Longer by this much, for the share of SMs that have no tile, while the next kernel's CTAs are let
start beside a kernel that memory limits: loads then wait for each other."""
