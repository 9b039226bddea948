"""Where the columns of a product ride wgmma's M by default: where tiles then come out evener.

wgmma's M comes in steps of 64, N in steps of 8. 5120 x 512 by 128 x 176 are 120 tiles of which the
last ones reach beyond the end; with 128 columns on M and 160 rows on N they are 128 that do not.
Measured on an H200, bf16: 26 shapes of 281 to 1846 rows, by chance, are 1.054 times as quick in
short bursts by this choice, 1.055 sustained, 49 of up to 6144 rows in steps of 64 1.049 and 1.057.
Other clusters fit so, too, where loading is the limit: 192 x 4096 x 6144 takes 19.9 us by 96 x 64
in pairs, 23.1 by 64 x 96.
"""

from __future__ import annotations

from wsdsl.ir.op import Kernel
from wsdsl.ir.tile_ops import Load, Store
from wsdsl.ir.types import Axis, Tensor, Tile
from wsdsl.lowering.model.workload import scales_products
from wsdsl.lowering.output_nest import output_nest
from wsdsl.lowering.product_operands import multiplied
from wsdsl.schedule import Schedule

LEAST_GAIN = 1.01
"""What it must bring by the model, which is not exact: 35 shapes of which it says 1 to 2 % are
1.018 times as quick in bursts, and 1.014 sustained."""


def may_be_swapped(kernel: Kernel, first: str, second: str) -> bool:
    """Whether the default may look at it: the output's loops walk a product's two axes, all results
    are tiles of these, and nothing else minds where rows and columns lie. Left alone are scales of
    blocks, residuals, which come in parts that are rows by columns, and outputs of 8 bits, which
    threads place one by one. Measured are operands of bf16, fp8, tf32 (18 shapes: 1.068 times as
    quick in bursts, 1.041 sustained) and i8, and results of f32 (21 of bf16: 1.040 and 1.027).
    """
    schedule = kernel.schedule or Schedule()
    if schedule.tile or schedule.share or kernel.unaligned or scales_products(kernel):
        return False
    walked = (loop.index.type for loop in output_nest(kernel)[0])
    if {axis.name for axis in walked if isinstance(axis, Axis)} != {first, second}:
        return False
    others = [op.result for op in kernel.of(Load) if op.result not in multiplied(kernel)]
    return all(len(v.type.axes) < 2 for v in others if isinstance(v.type, Tile)) and all(
        _is_plain(op, {first, second}) for op in kernel.ops if isinstance(op, Store)
    )


def _is_plain(op: Store, axes: set[str]) -> bool:
    """Whether TMA stores it in tiles of both axes."""
    assert isinstance(op.tensor.type, Tensor)
    stored = [v.type.name for v in op.index if isinstance(v.type, Axis)]
    whole = {*stored} == axes and isinstance(op.index[-1].type, Axis)
    return whole and op.tensor.type.dtype.bits in (16, 32)
