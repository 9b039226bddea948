"""How the lanes of a warp share tiles of kernels without products: whole vectors a lane, as memory
wants them, where products need wgmma's order.

A lane holds so many neighbours that the widest element's vector has 16 bytes, and as many lanes
follow each other along a row as make a tile's columns, up to 128: then a warp's access takes 256
bytes of a row at the least, and a piece of 64 rows 64 registers at the most. Rows that are not
aligned go through SMEM, an element at a time, in wgmma's order.
"""

from __future__ import annotations

import math

from wsdsl.ir.op import Kernel, once
from wsdsl.ir.tile_ops import Contract, Load, Store
from wsdsl.ir.tma import TMA_ALIGN
from wsdsl.ir.types import ACCUMULATOR, Lanes
from wsdsl.lowering.axes import axes_of

WARP, ROWS = 32, 64
MOST_COLUMNS = 128
"""Of a piece: 64 elements a thread."""
CTAS = 3
"""On an SM, that have registers for a piece each."""
MOST_FLAT = 4 * ROWS * MOST_COLUMNS
"""Of a tile that has one axis: several pieces."""


@once
def holds_vectors(kernel: Kernel) -> bool:
    """Whether tiles may be held as vectors: what has rows and columns is read and written along its
    columns, in rows that are aligned, and added nowhere.
    """
    accesses = _accesses(kernel)
    tiles = [op for op in accesses if len(op.axes) > 1]
    along = all(op.last is not None and op.last.role == "columns" for op in tiles)
    return (
        (bool(tiles) or flat_axis(kernel) is not None)
        and along
        and not any(isinstance(op, Contract) for op in kernel.ops)
        and all(op.dtype.bits >= 8 for op in accesses)
        and not any(op.tensor.name in kernel.unaligned for op in tiles)
        and not any(isinstance(op, Store) and op.accumulate for op in accesses)
    )


@once
def flat_axis(kernel: Kernel) -> str | None:
    """The one axis of a kernel whose tiles have no other: its elements go on from the end of a
    piece's row to the start of the next.
    """
    held = [name for name, axis in axes_of(kernel).items() if axis.role]
    one = held == [name for name in held if axes_of(kernel)[name].role == "rows"] and len(held) == 1
    contiguous = all(op.last == op.axes[-1] for op in _accesses(kernel) if op.axes)
    return held[0] if one and contiguous else None


def _accesses(kernel: Kernel) -> list[Load | Store]:
    return [op for op in kernel.ops if isinstance(op, (Load, Store))]


@once
def lanes_of(kernel: Kernel) -> Lanes:
    """Of a kernel whose tiles have sizes."""
    if not holds_vectors(kernel):
        return ACCUMULATOR
    flat, axes = flat_axis(kernel), axes_of(kernel)
    tiles = [op for op in _accesses(kernel) if len(op.axes) > (flat is None)]
    if flat:
        columns = axes[flat].size // ROWS if axes[flat].size % ROWS == 0 else 1
    else:
        columns = math.gcd(*(a.size for a in axes.values() if a.role == "columns"))
    vector = TMA_ALIGN // max(op.dtype.bytes for op in tiles)
    across = min(WARP, MOST_COLUMNS // vector)
    while across * vector > 1 and columns % (across * vector):
        across //= 2
    # Each lane has a row at the least, of the 16 that its warp has.
    across = across if flat is None or across * vector == columns else 0
    return Lanes(vector, across) if across >= 2 else ACCUMULATOR
