"""Allocations of SMEM that follow from a schedule (TILE).

The search counts them for numbers of stages and of buffers that it tries, and `make_plan` writes
them to the Plan: `allocate_shared` gives addresses to exactly these.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from wsdsl.ir.hardware.swizzle import SMEM_ALIGN
from wsdsl.ir.hardware.tcgen05_shapes import ADDRESS_BYTES
from wsdsl.ir.op import Kernel, once, once_each
from wsdsl.ir.ops import ANSWER_BYTES, DEPTH, Contract
from wsdsl.ir.plan import Allocation, PipelineSize, pipeline_smem, smem_end
from wsdsl.ir.types import ACCUMULATOR, Axis, Tile
from wsdsl.lowering import epilogue_operands as epilogue
from wsdsl.lowering import register_layout as layout
from wsdsl.lowering.axes import axes_of, output_nest, whole_axes
from wsdsl.lowering.buffer_assignment import SlotGroup, operand_slots
from wsdsl.lowering.cooperation import num_cooperating, num_shares, shared_role
from wsdsl.lowering.cta_pairs import halved_axes
from wsdsl.lowering.decode import decoded
from wsdsl.lowering.footprint import axis_sizes, is_heavy, sharing_ctas, slot_cycles
from wsdsl.lowering.partition_context import narrow_axes
from wsdsl.lowering.product_operands import computed_operands
from wsdsl.lowering.register_tiles import Shapes
from wsdsl.lowering.slot_copies import slot_offsets
from wsdsl.lowering.split_k_rules import cut_loop
from wsdsl.lowering.spread_rows import row_exchanges
from wsdsl.lowering.store_panels import staged_tensors
from wsdsl.lowering.tmem_accumulators import scale_slot_columns, sum_slots
from wsdsl.lowering.tmem_operands import tensor_rings
from wsdsl.lowering.tmem_scales import BUFFERED as SCALES_BUFFERED
from wsdsl.schedule import Schedule

STAGING_BUFFERS = 2
"""Buffers of a warpgroup for stores; one if stages leave no room for more."""
STAGING_BYTES = 8192
"""One buffer of a warpgroup: 64 rows of at most 128 bytes."""
LEAST_LOOKAHEAD = 2304
"""Cycles of the tensor cores by which loads run ahead at the least, at the cost of a buffer for
stores. On an H200 256 x 64 with 4 stages, not 5, is at 0.91, block-scaled 128 x 64 with 7, not 8,
at 0.91; beyond this a buffer is worth as much as a stage (128 x 144 with an epilogue).
"""
TENSOR_STAGING_BYTES = 16384
"""The same where sums lie in tensor memory: 128 rows."""
OUTER_RING_DEPTH = 2
"""Stages of a pipeline whose stages are in use around an inner loop."""


def tile_bytes(tile: Tile, sizes: dict[str, int]) -> int:
    """Return the bytes of SMEM of one tile in a stage."""
    elements = math.prod(sizes[axis] for axis in tile.axes)
    return -(-tile.dtype.size(elements) // SMEM_ALIGN) * SMEM_ALIGN


def slot_bytes(kernel: Kernel, schedule: Schedule, group: SlotGroup) -> int:
    """Return the bytes of a stage of MMA operands, and of the scale factors in it."""
    axes, sizes = sized_axes(kernel, schedule), axis_sizes(kernel, schedule)
    among = num_shares(kernel, schedule) if not kernel.target.has_tensor_memory else {}
    divided = {name: among.get(axis.role, 1) for name, axis in axes.items()}
    for last in {edge.layout.axes[-1] for edge in group.operands}:
        made = group.producer == "decode" and last in whole_axes(kernel)
        if made or group.consumer == "decode":
            # `assign_decode_axes` gives a whole dimension that role for all partitions.
            axes[last] = dataclasses.replace(axes[last], role=decoded(kernel).roles[last])
            divided[last] = 1
    boxes = {(0, n): edge.box.box(sizes) for n, edge in enumerate(group.edges) if edge.box}
    return slot_offsets([group.layout], boxes, halved_axes(schedule, axes), divided)[0]


def sized_axes(kernel: Kernel, schedule: Schedule) -> dict[str, Axis]:
    sizes = axis_sizes(kernel, schedule)
    return {n: dataclasses.replace(axis, size=sizes[n]) for n, axis in axes_of(kernel).items()}


@once
def _held_together(kernel: Kernel) -> Counter[int]:
    """Map each pipeline to the stages that consumers use at the same time before an MMA with a
    transformed operand.
    """
    found = Counter[int]()
    for group in operand_slots(kernel):
        operands = ((i, computed_operands(kernel, op)) for i, op in enumerate(group.block)
                    if isinstance(op, Contract))  # fmt: skip
        held = (i for i, values in operands if not decoded(kernel).tiles.keys() >= {*values})
        found[group.ring] += group.last < next(held, 0)
    return found


def smem_bytes(
    kernel: Kernel, schedule: Schedule, stages: int, buffers: int = STAGING_BUFFERS
) -> int:
    """Return the bytes of SMEM of a CTA with `buffers` per warpgroup for stores and the least
    stages of epilogue operands.
    """
    return smem_end(allocations(kernel, schedule, stages, buffers, epilogue.MIN_DEPTH))


def smem_depths(kernel: Kernel, schedule: Schedule) -> tuple[int, int]:
    """Return the buffers per warpgroup for stores, and the stages of epilogue operands: as many as
    fit in SMEM with two buffers.
    """
    room, stages = kernel.target.smem_bytes, schedule.stages or 1
    for n in range(epilogue.MAX_DEPTH, epilogue.MIN_DEPTH - 1, -1):
        if smem_end(allocations(kernel, schedule, stages, STAGING_BUFFERS, n)) <= room:
            return STAGING_BUFFERS, n
    return 1, epilogue.MIN_DEPTH


def allocations(
    kernel: Kernel, schedule: Schedule, stages: int, buffers: int, parts: int
) -> Iterator[Allocation]:
    """Yield the allocations of SMEM of a CTA, except privatized bins, and row reductions of
    memory-bound kernels without tile sizes. Before `bound_ranges` clipped tiles count as staged.
    """
    staging, fixed = _fixed_allocations(kernel, schedule)
    for number, own in pipelines(kernel, schedule).items():
        tiles = own.panels, own.lines
        yield from pipeline_smem(f"pipeline {number}", own.depth(stages, parts), *tiles)
    if staging:
        yield Allocation("staging", buffers * staging)
    yield from fixed


@once_each
def pipelines(kernel: Kernel, schedule: Schedule) -> Mapping[int, PipelineSize]:
    """Return the sizes of pipelines, by number."""
    sizes, least = axis_sizes(kernel, schedule), _held_together(kernel)
    found = tensor_rings(kernel, sizes)
    for group in operand_slots(kernel):
        known = found.get(group.ring, PipelineSize())
        if not group.in_shared:
            columns = scale_slot_columns(kernel, sizes)
            found[group.ring] = PipelineSize(columns=columns, fixed=SCALES_BUFFERED)
        elif not known.columns:
            size = max(known.panels, slot_bytes(kernel, schedule, group))
            fixed = 0 if group.is_innermost else OUTER_RING_DEPTH
            found[group.ring] = PipelineSize(size, fixed=fixed, least=least[group.ring])
    for group in epilogue.epilogue_slots(kernel, schedule):
        widths = epilogue.subtile_widths(kernel, group.loads, sizes, is_heavy(kernel, schedule))
        bytes = epilogue.subtile_offsets(group.layout, widths, sizes)[1]
        found[group.ring] = PipelineSize(*bytes, subtiles=widths)
    return found


@once_each
def _fixed_allocations(kernel: Kernel, schedule: Schedule) -> tuple[int, Sequence[Allocation]]:
    """Return the bytes of staging with one buffer per warpgroup, and the allocations besides it and
    pipelines between partitions.
    """
    found, sharing = list[Allocation](), sharing_ctas(kernel, schedule)
    consumers, shapes = schedule.consumers or 1, shapes_of(kernel, schedule)
    if sharing > 1 and (loop := cut_loop(output_nest(kernel)[1])):
        sizes, sums = axis_sizes(kernel, schedule), [v for v in loop.result if v.is_tile]
        bytes = sum(tile_bytes(v.as_tile, sizes) for v in sums)
        found += pipeline_smem("cluster split-K", 1, bytes // sharing * (sharing - 1))
    if schedule.scheduler == "dynamic":
        found += pipeline_smem("CLC responses", DEPTH, ANSWER_BYTES)
    if sum_slots(kernel):
        found.append(Allocation("TMEM address", ADDRESS_BYTES, ADDRESS_BYTES))
    if layout.turned(kernel):
        found.append(Allocation("transposes", layout.turned_bytes(kernel, shapes.own) * consumers))
    if _is_sized(kernel, schedule) or not layout.holds_vectors(kernel):
        found += row_exchanges(kernel, schedule, shapes)
    staged = bool(staged_tensors(kernel, kernel.body, shapes))
    return staged * staging_bytes(kernel) * consumers, found


def shapes_of(kernel: Kernel, schedule: Schedule) -> Shapes:
    """Return the shapes of fragments, with the lanes of accumulators before axes have sizes."""
    how = ACCUMULATOR, None, layout.ROWS
    if _is_sized(kernel, schedule):
        how = layout.lanes_of(kernel), layout.flat_axis(kernel), layout.height_of(kernel)
    among = num_cooperating(schedule), shared_role(kernel, schedule), narrow_axes(kernel)
    in_tensors = kernel.target.has_tensor_memory and bool(kernel.of(Contract))
    return Shapes(sized_axes(kernel, schedule), *among, {}, *how, in_tensors)


def _is_sized(kernel: Kernel, schedule: Schedule) -> bool:
    return kernel.schedule is schedule and all(a.size for a in axes_of(kernel).values())


def staging_bytes(kernel: Kernel) -> int:
    """Of a buffer of a warpgroup."""
    in_tensors = kernel.target.has_tensor_memory and kernel.of(Contract)
    return TENSOR_STAGING_BYTES if in_tensors else STAGING_BYTES


def fits_smem(
    kernel: Kernel, schedule: Schedule, stages: int, buffers: int = STAGING_BUFFERS
) -> bool:
    return smem_bytes(kernel, schedule, stages, buffers) <= kernel.target.smem_bytes


def runs_ahead(kernel: Kernel, schedule: Schedule) -> bool:
    """Whether SMEM has room for enough stages to keep the tensor cores busy."""
    stages = -(-LEAST_LOOKAHEAD // max(1, slot_cycles(kernel, schedule)))
    return fits_smem(kernel, schedule, stages, buffers=1)
