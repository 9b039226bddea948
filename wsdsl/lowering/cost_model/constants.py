"""Numbers of the model that are no rates of a card: how what limits a kernel adds up.

`python -m tools.fit_model` tells what each does to predictions of kernels that were measured.
"""

SHARPNESS = 7.0
"""Of what runs beside each other: the exponent by which the longer is nearly all that counts."""
RATE_BYTES = 48.0
"""A cycle and SM, at which `tensor_l2_clock` is measured."""
READY = 0.47
"""The share of cycles in which a warp has an instruction to issue, of code in which each needs the
one in front of it. Schedulers have as many warps as there are consumers."""
DECODING_STEP = 45.0
"""Instructions of a thread for an iteration in which it computes operands, beside those of their
elements, for waits and addresses: in the machine code of i8 weights 43, of i4 58."""
PRODUCT_ISSUE = 0.5
"""The share of the tensor cores' time that is added to what threads take meanwhile to compute
operands, as both read and write registers: 0.4 to 0.55 (benchmarks/results/one_off_races.md)."""
FURTHER_CYCLES, FURTHER_SCALED_CYCLES, SCALED_CYCLES = 0.4, 28.0, 45.0
"""More for promoted sums: for each column of a further block of 64 rows; for each such block that
is scaled, and each part of a product; and where fewer than three consumers scale products."""
ASTRAY = 1.2
"""By how much longer operands take to come to workers of tiles that are cut, at different times."""
AGAIN = 0.04
"""Longer by so much for each time more than once that tiles ask for what comes from memory."""
IDLE_POWER = 0.4
"""Of an SM that does not multiply beside others that do, as a share of theirs: so predictions are
nearest to what was measured, of 907 schedules on an H100 as of 415 on an H200."""
COPIED, COPIED_SINGLY = 5.5, 10.0
"""By how much longer operands take that threads copy by words, and by single elements, than TMA."""
MADE_IN_SHARED = 2.0
"""Times the instructions of what one warpgroup makes in SMEM: it is stored, and waited for."""
APART_NS, HELD_UP = 2000.0, 3.0
"""From the end of the mean CTA to that of the last one, where memory brings what operands are
computed from: 1.7 to 3 us with 14336 x 4096 lossless weights on an H100; of means of n CTAs that
load for each other 1 / sqrt(n) of it; and the exponent of memory's share of the time in that."""
GPCS = 8
"""Of an H100 and an H200 (NVIDIA H100 Tensor Core GPU Architecture, 2022)."""
