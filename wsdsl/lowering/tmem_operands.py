"""Operands that threads compute, and that MMAs read in tensor memory.

    %p: compute -> mma; TMEM bf16[m, t]; t, pipeline 2 (two)

An MMA reads its A operand in the lanes of its accumulator's rows, two elements of 16 bits per cell,
so that it does not cross SMEM. It is there if columns are left in addition to a stage of each
accumulator; or if the schedule says so (`Schedule.operand_transform="tmem"`).
"""

from collections.abc import Iterator

from wsdsl.diagnostics import Finding
from wsdsl.ir.hardware.tcgen05_shapes import COLUMNS, LANES, STORED_BITS, cell_columns
from wsdsl.ir.op import Kernel, once
from wsdsl.ir.ops import Contract
from wsdsl.ir.plan import PipelineSize
from wsdsl.ir.types import Sizes, Tile
from wsdsl.lowering.axes import axes_of
from wsdsl.lowering.buffer_assignment import SlotGroup, operand_slots
from wsdsl.lowering.cooperation import num_cooperating
from wsdsl.lowering.cta_pairs import PAIR
from wsdsl.lowering.decode import loads_of, places_of, tensors_of
from wsdsl.lowering.edge import Edge
from wsdsl.lowering.product_operands import computed_operands
from wsdsl.lowering.tmem_accumulators import scale_columns_of, slot_columns, sum_slots
from wsdsl.lowering.updated_sums import updates
from wsdsl.schedule import Place, Schedule

BUFFERED = 2
"""Stages of accumulators, and of an operand, where columns allow."""


def tensor_depths(kernel: Kernel, sizes: Sizes) -> dict[int, int]:
    """Map pipelines of accumulators and operands to their number of stages: one each, then two of
    the innermost, which is first.
    """
    sums, operands = slot_columns(kernel, sizes), operand_columns(kernel, sizes)
    found = dict.fromkeys(sums, 1) | dict.fromkeys(wanted_rings(kernel), 1)
    wanted = sums | operands
    left = COLUMNS - scale_columns_of(kernel, sizes) - sum(wanted[ring] for ring in found)
    first, *others = sorted(sums)
    alone = updated_rings(kernel)
    # The operand would otherwise go through SMEM; one stage is released soon after its reads.
    for n, ring in enumerate((*operands, first, *operands, *others)):
        most = 1 if ring in alone or n < len(operands) else BUFFERED
        num = max(0, min(most - found.get(ring, 0), left // wanted[ring]))
        found[ring] = found.get(ring, 0) + num
        left -= num * wanted[ring]
    return {ring: num for ring, num in found.items() if num}


def tensor_rings(kernel: Kernel, sizes: Sizes) -> dict[int, PipelineSize]:
    """Map the same pipelines to their sizes."""
    columns = slot_columns(kernel, sizes) | operand_columns(kernel, sizes)
    depths = tensor_depths(kernel, sizes) if sum_slots(kernel) else {}
    return {n: PipelineSize(columns=columns[n], fixed=num) for n, num in depths.items()}


@once
def updated_rings(kernel: Kernel) -> frozenset[int]:
    """Of sums that threads change in place: there is one of each."""
    changed = updates(kernel)
    return frozenset(
        g.ring for g in sum_slots(kernel) if any(edge.made in changed for edge in g.edges)
    )


def operand_columns(kernel: Kernel, sizes: Sizes) -> dict[int, int]:
    """Map pipelines of operands that may be there to the columns of a stage."""
    found = dict[int, int]()
    for group in _may_be(kernel):
        tiles = (edge.layout for edge in group.edges)
        own = sum(operand_width(tile, sizes) for tile in tiles)
        found[group.ring] = max(own, found.get(group.ring, 0))
    return found


def operand_width(tile: Tile, sizes: Sizes) -> int:
    """Return the columns of a tile whose last axis is the contraction axis."""
    rows, summed = (sizes[name] for name in tile.axes)
    return cell_columns(tile.dtype, summed) * -(-rows // LANES)


@once
def _may_be(kernel: Kernel) -> tuple[SlotGroup, ...]:
    if not kernel.target.has_tensor_memory:
        return ()
    groups = [g for g in operand_slots(kernel) if g.producer == "compute" or _wanted(g)]
    if _asked(kernel) == "smem":
        groups = []
    unfit = {g.ring for g in groups if any(not _fits(kernel, edge) for edge in g.edges)}
    return tuple(group for group in groups if group.ring not in unfit)


def _wanted(group: SlotGroup) -> bool:
    """Whether the schedule wants there what a partition decodes."""
    return any(edge.wants_tensor for edge in group.edges)


def _fits(kernel: Kernel, edge: Edge) -> bool:
    """Whether products read it alongside the rows of their sums, as threads hold it."""
    axes, tile, value = axes_of(kernel), edge.layout, edge.value
    if tile.dtype.bits not in STORED_BITS or (kernel.schedule or Schedule()).cta_group == PAIR:
        return False
    products = [op for op in kernel.of(Contract) if value in (op.a, op.b)]
    rows = {x for op in products for x in op.result.as_tile.axes if axes[x].role == "rows"}
    if edge.producer == "decode" and num_cooperating(kernel.schedule or Schedule()) > 1:
        return False
    scaled = any(op.scales for op in products) or any(x.packed for x in loads_of(kernel, value))
    by_columns = edge.producer == "decode" or axes[tile.axes[-1]].role == "columns"
    return rows == {tile.axes[0]} and by_columns and not scaled


def _asked(kernel: Kernel) -> Place | None:
    """Where all operands are to lie, if the schedule says so."""
    asked = kernel.schedule.operand_transform if kernel.schedule else None
    return asked if isinstance(asked, str) else None


def wanted_rings(kernel: Kernel) -> frozenset[int]:
    """Of operands that the schedule wants there, and that may be."""
    every = _asked(kernel) == "tmem"
    return frozenset(group.ring for group in _may_be(kernel) if every or _wanted(group))


def unfit_operands(kernel: Kernel) -> Iterator[Finding]:
    """Reject operands that the schedule puts into TMEM, and that cannot be there."""
    there = {edge.value for group in _may_be(kernel) for edge in group.edges}
    asked = kernel.schedule.operand_transform if kernel.schedule else None
    for op in kernel.of(Contract):
        for value in computed_operands(kernel, op):
            wanted = "tmem" in places_of(asked, tensors_of(kernel, value)) or asked == "tmem"
            if wanted and value not in there:
                told = 'WS0455 Schedule.operand_transform is "tmem"; this operand cannot be in TMEM'
                hint = "leave it out: TMEM takes unpacked operands of 16 or 32 bits along M of one "
                hint += "CTA's MMAs (Schedule.mma_m), without block scale factors"
                yield Finding(told, kernel.definers[value].loc, hint)
