"""Where the columns of a product ride wgmma's M by default: where tiles then come out evener.

wgmma's M comes in steps of 64, N in steps of 8. 5120 x 512 by 128 x 176 are 120 tiles of which the
last ones reach beyond the end; with 128 columns on M and 160 rows on N they are 128 that do not.
Measured on an H200, bf16: 26 shapes of 281 to 1846 rows, by chance, are 1.054 times as quick in
short bursts by this choice, 1.055 sustained, 49 of up to 6144 rows in steps of 64 1.049 and 1.057.
Where all tiles run at the same time and wait for their operands, other clusters fit so: 192 x 4096
x 6144 takes 19.9 us by 96 x 64 in pairs, 23.1 by 64 x 96.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from wsdsl.ir.op import Kernel
from wsdsl.ir.tile_ops import Contract, ForEach, ForTiles, Load, Store
from wsdsl.ir.types import Axis, Tensor, Tile
from wsdsl.lowering.model.loading import L2_BYTES, NARROW
from wsdsl.lowering.model.predict import NUM_SMS, POWER
from wsdsl.lowering.model.workload import scales_products
from wsdsl.lowering.nest import output_nest
from wsdsl.schedule import Schedule

LEAST_GAIN = 1.01
"""What it must bring by the model, which is not exact: 35 shapes of which it says 1 to 2 % are
1.018 times as quick in bursts, and 1.014 sustained."""
HEIGHTS, WIDTHS = (64, 128, 256), range(16, 257, 8)
MOST_AREA = 128 * 256
"""Of a tile, which lies in registers."""
LINE = 4096 / L2_BYTES
"""Elements whose products take as long as to load a line of the operands: of half the bits twice as
many are multiplied in a cycle ..."""
POWER_LINE = 4096 * POWER
"""... and as what it costs by the clock."""


def may_be_swapped(kernel: Kernel, first: str, second: str) -> bool:
    """Whether the default may look at it: all results are tiles of a product's two axes, and
    nothing else minds where rows and columns lie. Left alone are scales of blocks, residuals, which
    come in parts that are rows by columns, and outputs of other than 16 bits, which threads place
    one by one. Operands were measured of bf16 and fp8; others are taken to be like them.
    """
    schedule = kernel.schedule or Schedule()
    if schedule.tile or schedule.share or kernel.unaligned or scales_products(kernel):
        return False
    products = [op for op in kernel.ops if isinstance(op, Contract)]
    operands = {v for op in products for v in (op.a, op.b)}
    others = [op.result for op in kernel.ops if isinstance(op, Load) and op.result not in operands]
    return all(len(v.type.axes) < 2 for v in others if isinstance(v.type, Tile)) and all(
        _is_plain(op, {first, second}) for op in kernel.ops if isinstance(op, Store)
    )


def _is_plain(op: Store, axes: set[str]) -> bool:
    """Whether TMA stores it in tiles of both axes."""
    assert isinstance(op.tensor.type, Tensor)
    stored = [v.type.name for v in op.index if isinstance(v.type, Axis)]
    whole = {*stored} == axes and isinstance(op.index[-1].type, Axis)
    return whole and op.tensor.type.dtype.bits == 16


def may_gain(kernel: Kernel, sizes: Mapping[str, int], first: str, second: str) -> bool:
    """Whether the busiest SM could have less of the output, or clusters could lie otherwise where
    they bring most: to ask the model takes as long as the whole choice.
    """
    nest, _ = output_nest(kernel.body)
    batches = math.prod(sizes.get(loop.dim, 0) for loop in nest if isinstance(loop, ForEach))
    axes = [loop.index.type for loop in nest if isinstance(loop, ForTiles)]
    walked = {a.name: sizes.get(a.dim, 0) for a in axes if isinstance(a, Axis)}
    if {*walked} != {first, second}:
        return False
    rows, columns = walked[first], walked[second]
    area, narrow = _least_area(columns, rows, batches)
    return narrow or area < _least_area(rows, columns, batches)[0]


def _least_area(rows: int, columns: int, batches: int) -> tuple[float, bool]:
    """Of the output, that the busiest SM has; the more where loading is the limit: then also
    whether it is for tiles that all run at the same time.
    """
    found, narrow = math.inf, False
    for height in HEIGHTS:
        for width in WIDTHS:
            if height * width <= MOST_AREA:
                tiles = -(-rows // height) * -(-columns // width) * batches
                area, lines = height * width, height + width
                each = max(area + POWER_LINE * lines, LINE * lines)
                waves = -(-tiles // NUM_SMS)
                if waves * each < found:
                    found, narrow = waves * each, waves == 1 and LINE * lines > NARROW * area
    return found, narrow
