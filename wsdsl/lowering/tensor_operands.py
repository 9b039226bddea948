"""Operands that threads make, and that products read in tensor memory.

    %p: compute -> mma; TMEM bf16[m, t]; t, ring 2 (two)

A product reads its left operand in the lanes of its sum's rows, two elements of 16 bits to a cell,
so that it need not cross SMEM. It lies there where columns are left beside a slot of each sum, and
two of what is taken first; or where the schedule says so (`Schedule.decode="tensor"`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wsdsl.diagnostics import Finding
from wsdsl.ir.op import Kernel, Value, once
from wsdsl.ir.tcgen05 import COLUMNS, cell_columns
from wsdsl.ir.tensor_rules import STORED_BITS
from wsdsl.ir.tile_ops import Contract
from wsdsl.ir.types import Tile
from wsdsl.ir.walk import made_of
from wsdsl.lowering.axes import axes_of
from wsdsl.lowering.cta_pairs import PAIR
from wsdsl.lowering.handed_back import handed_back
from wsdsl.lowering.product_operands import computed_operands
from wsdsl.lowering.slots import SlotGroup, operand_slots
from wsdsl.lowering.tensor_sums import scale_columns_of, slot_columns, sum_slots
from wsdsl.lowering.updated_sums import updates
from wsdsl.schedule import Place, Schedule

BUFFERED = 2
"""Slots of sums, and of an operand, where columns allow."""


def tensor_depths(kernel: Kernel, sizes: Mapping[str, int]) -> dict[int, int]:
    """By ring of sums, or of operands that lie there, how many slots it has. What is taken first,
    the innermost, has the first choice.
    """
    sums, operands = slot_columns(kernel, sizes), operand_columns(kernel, sizes)
    forced = _asked(kernel) == "tensor"
    found = dict.fromkeys(sums, 1) | dict.fromkeys(operands if forced else (), 1)
    wanted = sums | operands
    left = COLUMNS - scale_columns_of(kernel, sizes) - sum(wanted[ring] for ring in found)
    first, *others = sorted(sums)
    alone = updated_rings(kernel)
    for ring in (first, *operands, *others):
        most = 1 if ring in alone else BUFFERED
        num = max(0, min(most - found.get(ring, 0), left // wanted[ring]))
        found[ring] = found.get(ring, 0) + num
        left -= num * wanted[ring]
    return {ring: num for ring, num in found.items() if num}


@once
def updated_rings(kernel: Kernel) -> frozenset[int]:
    """Of sums that threads change in place: there is one of each."""
    changed = updates(kernel)
    return frozenset(
        g.ring for g in sum_slots(kernel) if any(edge.made in changed for edge in g.edges)
    )


def in_tensor_memory(kernel: Kernel, sizes: Mapping[str, int]) -> frozenset[int]:
    """Rings of operands that lie there."""
    operands = operand_columns(kernel, sizes)
    return frozenset(operands.keys() & tensor_depths(kernel, sizes)) if operands else frozenset()


def operand_columns(kernel: Kernel, sizes: Mapping[str, int]) -> dict[int, int]:
    """By ring of operands that may lie there, what a slot has."""
    found = dict[int, int]()
    for group in _may_be(kernel):
        tiles = (edge.layout for edge in group.edges)
        own = sum(operand_width(tile, sizes) for tile in tiles)
        found[group.ring] = max(own, found.get(group.ring, 0))
    return found


def operand_width(tile: Tile, sizes: Mapping[str, int]) -> int:
    """Columns of a tile whose last axis is the one that is summed over."""
    return cell_columns(tile.dtype, sizes[tile.axes[-1]])


@once
def _may_be(kernel: Kernel) -> tuple[SlotGroup, ...]:
    if not kernel.target.has_tensor_memory or _asked(kernel) == "shared":
        return ()
    groups = [g for g in operand_slots(kernel) if g.producer == "compute"]
    unfit = {g.ring for g in groups if any(not _fits(kernel, edge.value) for edge in g.edges)}
    return tuple(group for group in groups if group.ring not in unfit)


def _fits(kernel: Kernel, value: Value) -> bool:
    """Whether products read it alongside the rows of their sums, as threads hold it."""
    axes, tile = axes_of(kernel), handed_back(kernel)[value]
    if tile.dtype.bits not in STORED_BITS or (kernel.schedule or Schedule()).cta_group == PAIR:
        return False
    products = (op for op in kernel.of(Contract) if value in (op.a, op.b))
    rows = {x for op in products for x in op.result.as_tile.axes if axes[x].role == "rows"}
    held = [axes[name].role for name in tile.axes]
    return rows == {tile.axes[0]} and held == ["rows", "columns"]


def _of_products(kernel: Kernel, value: Value) -> bool:
    walked = made_of((value,), kernel.definers, lambda op: not isinstance(op, Contract))
    return any(isinstance(op, Contract) for _, op in walked)


def _asked(kernel: Kernel) -> Place | None:
    """Where what is made of products is to lie, if the schedule says so of all operands."""
    asked = kernel.schedule.decode if kernel.schedule else None
    return asked if isinstance(asked, str) else None


def unfit_operands(kernel: Kernel) -> Iterator[Finding]:
    """Those that the schedule wants there, and that are not made there."""
    if _asked(kernel) != "tensor":
        return
    there = {edge.value for group in _may_be(kernel) for edge in group.edges}
    for op in kernel.of(Contract):
        for value in computed_operands(kernel, op):
            if value not in there or not _of_products(kernel, value):
                told = 'Schedule.decode is "tensor", and this operand can not lie in tensor memory'
                hint = "leave it out: threads write there what they make of products, of 16 or 32 "
                hint += "bits, for the rows of a sum that one CTA multiplies"
                yield Finding(told, kernel.definers[value].loc, hint)
