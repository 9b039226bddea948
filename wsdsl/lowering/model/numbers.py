"""Numbers of the model that are no rates of a card: how what limits a kernel adds up.

`python -m tools.fit_model` tells what each does to predictions of kernels that were measured.
"""

from __future__ import annotations

SHARPNESS = 7.0
"""Of what runs beside each other: the exponent by which the longer is nearly all that counts."""
RATE_BYTES = 48.0
"""A cycle and SM, at which `tensor_l2_clock` is measured."""
READY = 0.47
"""The share of cycles in which a warp has an instruction to issue, of code in which each needs the
one in front of it. Schedulers have as many warps as there are consumers."""
FURTHER_CYCLES = 0.4
"""More, for each column of a further block of 64 rows that is promoted."""
SCALED_CYCLES = 45.0
"""More, where products are scaled and there are fewer than three consumers."""
FURTHER_SCALED_CYCLES = 28.0
"""More, for each further block of 64 rows that is scaled, and each part of a product."""
ASTRAY = 1.2
"""By how much longer operands take to come to workers of tiles that are cut: those that want the
same do so at different times."""
AGAIN = 0.04
"""Longer by so much for each time more than once that tiles ask for what comes from memory."""
IDLE_POWER = 0.4
"""Of an SM that does not multiply beside others that do, as a share of theirs: so predictions are
nearest to what was measured, of 907 schedules on an H100 as of 415 on an H200."""
COPIED, COPIED_SINGLY = 5.5, 10.0
"""By how much longer operands take that threads copy by words, and by single elements, than TMA."""
