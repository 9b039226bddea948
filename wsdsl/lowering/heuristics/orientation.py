"""Choose the axis along the MMA's M, if `Schedule.mma_m` leaves it open (TILE).

M is a multiple of 64, N of 8. The columns are along M (swap-AB) for few rows, since M is at least
64, and where tiles then cover the output more evenly, or where other clusters fit.
"""

from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import Contract, Load, Store
from wsdsl.ir.types import Axis, Sizes, Tile
from wsdsl.lowering.axes import axes_of, loop_variable, output_nest
from wsdsl.lowering.cost_model.workload import FEW_COLUMNS, scales_products
from wsdsl.lowering.product_operands import multiplied
from wsdsl.schedule import Schedule

LEAST_GAIN = 1.01
"""What it must bring by the model, which is not exact."""
FEWEST = 32
"""For so few rows the columns always ride: of a tile of 64 the other rows are loaded as zeros,
which takes TMA longer than to copy.
"""


def other_orientation(kernel: Kernel, sizes: Sizes) -> tuple[str, float] | None:
    """The variable whose axis may ride M in place of the usual one, and by what factor its cycles
    count: 0 where it rides wherever that can be laid out. `sizes`: dimensions at launch; where none
    is known, nothing is chosen.
    """
    schedule = kernel.schedule or Schedule()
    if schedule.mma_m is not None or schedule.is_whole or not sizes:
        return None
    known = dict(kernel.sizes) | dict(sizes)
    extents = {name: known.get(axis.dim, 0) for name, axis in axes_of(kernel).items()}
    for op in kernel.of(Contract):
        first, second = (next(iter(side), "") for side in op.free)
        few, many = extents.get(first, 0), extents.get(second, 0)
        if 0 < few <= FEW_COLUMNS < many:
            always = few <= FEWEST and not schedule.tile
            return loop_variable(second), 0.0 if always else 1.0
        large = min(few, many) > FEW_COLUMNS and all(extents.values())
        if large and may_be_swapped(kernel, first, second):
            return loop_variable(second), LEAST_GAIN
    return None


def may_be_swapped(kernel: Kernel, first: str, second: str) -> bool:
    """Whether the default may look at it: the output's loops walk a product's two axes, all results
    are tiles of these, and nothing else minds where rows and columns lie. Left alone are scales of
    blocks, residuals, which come in parts that are rows by columns, and outputs of 8 bits, which
    threads place one by one. Measured are operands of bf16, fp8, tf32 (18 shapes: 1.068 times as
    quick in bursts, 1.041 sustained) and i8, and results of f32 (21 of bf16: 1.040 and 1.027).
    """
    schedule = kernel.schedule or Schedule()
    if schedule.tile or schedule.consumer_split or kernel.unaligned or scales_products(kernel):
        return False
    walked = (loop.index.type for loop in output_nest(kernel)[0])
    if {axis.name for axis in walked if isinstance(axis, Axis)} != {first, second}:
        return False
    others = [op.result for op in kernel.of(Load) if op.result not in multiplied(kernel)]
    return all(len(v.type.axes) < 2 for v in others if isinstance(v.type, Tile)) and all(
        _is_plain(op, {first, second}) for op in kernel.of(Store)
    )


def _is_plain(op: Store, axes: set[str]) -> bool:
    """Whether TMA stores it in tiles of both axes."""
    return {a.name for a in op.axes} == axes and op.last is not None and op.dtype.bits in (16, 32)
