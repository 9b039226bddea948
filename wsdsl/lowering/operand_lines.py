"""How an operand's tile lies in its slot: in panels, whose lines run along its contiguous axis.

TMA takes as long for a line of 32 bytes as for one of 128, some 1.6 cycles. So tiles whose lines
run along rows or columns (MN-major ones) are as few panels as can be, of which the last may reach
over the tile's end: 240 columns of bf16 are four panels of 64. Products read what they need of it.

Lines along the contraction are what the schedule makes them, and never reach over.
"""

from __future__ import annotations

from wsdsl.ir.packing import packed_swizzle
from wsdsl.ir.swizzle import SWIZZLE_SPAN, widest_swizzle
from wsdsl.ir.tma import TMA_ALIGN
from wsdsl.ir.types import DType, Role


def operand_lines(
    size: int, dtype: DType, role: Role, shares: int = 1, packed: bool = False
) -> tuple[str, int]:
    """(swizzle mode, elements of all panels' lines) of a tile with `size` elements along its
    contiguous axis. Each of `shares` consumers begins with a panel.
    """
    if packed:
        return packed_swizzle(dtype), size
    if not role:
        over = dtype.size(size) % TMA_ALIGN
        return ("none", size) if over else (widest_swizzle(dtype.size(size)), size)
    own = dtype.size(size // shares)
    fitting = ("32B", "64B", "128B")
    if shares > 1:
        fitting = [mode for mode in fitting if own % SWIZZLE_SPAN[mode] == 0] or fitting[:1]
    mode = min(fitting, key=lambda mode: -(-own // SWIZZLE_SPAN[mode]))
    span = dtype.count(SWIZZLE_SPAN[mode])
    return mode, -(-size // span) * span
