"""Choose after how many elements of K fp8 accumulators are promoted to f32.

The tensor cores accumulate about 14 bits and drop the rest: over thousands of positive elements a
tenth of the result is lost. So the accumulators of one tile along K are added to f32 registers, or
those of each SMEM row of it (`schedule_products`).
"""

from wsdsl.diagnostics import Finding
from wsdsl.ir.hardware.target import target_of
from wsdsl.ir.hardware.wgmma_shapes import is_fp8
from wsdsl.ir.op import Kernel, once, regions
from wsdsl.ir.ops import Contract
from wsdsl.lowering.axes import axes_of, loop_variable
from wsdsl.lowering.footprint import MAX_LINE, axis_sizes, depth_of, row_blocks
from wsdsl.schedule import PRECISE_EVERY, Schedule

FAST = "0 is faster, but its error is up to 20 % of the result for positive data"


@once
def fp8_axes(kernel: Kernel) -> tuple[str, ...]:
    """Return the contraction axes of fp8 MMAs."""
    products = (op for op in kernel.of(Contract) if is_fp8(op.dtype))
    return tuple(dict.fromkeys(axis for op in products for axis in op.summed))


def promotes(schedule: Schedule | None) -> bool:
    """In tensor memory sums are f32."""
    if schedule is None:
        return True
    return schedule.mma_promotion_interval != 0 and not target_of(schedule.arch).has_tensor_memory


def choose_precision(kernel: Kernel, chosen: Schedule) -> tuple[int | None, list[Finding]]:
    """`Schedule.mma_promotion_interval` of a schedule with tiles, and findings against it."""
    given, sizes, axes = chosen.mma_promotion_interval, axis_sizes(kernel, chosen), axes_of(kernel)
    depths = {name: sizes[name] for name in fp8_axes(kernel)}
    if kernel.target.has_tensor_memory:
        what = f"{kernel.target} does not promote accumulators: it accumulates fp8 in f32"
        told = f"WS0441 Schedule.mma_promotion_interval is {given}; {what}"
        return given, [Finding(told, hint="leave it out")] if given else []
    if not depths:
        told = f"WS0442 Schedule.mma_promotion_interval is {given}; the kernel has no fp8 matmul"
        return given, [Finding(told, hint="leave it out")] if given is not None else []
    deepest = max(depths.values())
    every = min(PRECISE_EVERY, deepest) if given is None else given
    findings: list[Finding] = []
    for name, depth in depths.items():
        why = why_not_in_parts(kernel, chosen, every) if every and depth > every else None
        if why is not None:
            told = f"WS0443 accumulators over `{loop_variable(axes[name].name)}` are promoted to "
            told += f"f32 after each tile of {depth}{why}, not every {every} elements"
            hint = f"use a tile of {every}, or mma_promotion_interval={depth}; {FAST}"
            findings.append(Finding(told, hint=hint))
    if every > deepest:
        told = f"WS0444 Schedule.mma_promotion_interval={every} exceeds the tile's K extent, "
        told += f"{deepest}: accumulators are promoted to f32 after each tile"
        hint = f"use mma_promotion_interval={deepest}, or a tile of {every}; {FAST}"
        findings.append(Finding(told, hint=hint))
    return every, findings


def why_not_in_parts(kernel: Kernel, chosen: Schedule, every: int) -> str | None:
    """Say why accumulators of tiles deeper than `every` cannot be promoted in parts; None if they
    can.
    """
    sizes, blocks = axis_sizes(kernel, chosen), row_blocks(kernel, chosen)
    for region in (kernel.body, *(inner for op in kernel.ops for inner in regions(op))):
        products = [op for op in region if isinstance(op, Contract)]
        deep = [op for op in products if is_fp8(op.dtype) and depth_of(op, sizes) > every]
        if any(every % MAX_LINE or depth_of(op, sizes) % every for op in deep):
            return ""
        if deep and blocks > 1:
            return f" by consumers with {blocks} blocks of 64 rows"
        if deep and len({(op.acc is None, depth_of(op, sizes)) for op in products}) > 1:
            return " where other matmuls have other K extents or accumulators"
        if deep and not all(is_fp8(op.dtype) for op in products):
            return " where other matmuls have other dtypes"
    return None
