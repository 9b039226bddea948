"""Where tiles of a dimension may overlap: both results of an element must have the same bits.

Both tiles then store the element, in any order, without a visible difference. That holds if both
add the same terms in the same order, anywhere in the tile; and if nothing reads what is
stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import ceil

from wsdsl.ir import ops
from wsdsl.ir.analysis.scale_factor_indices import in_atoms
from wsdsl.ir.analysis.tensor_accesses import touches
from wsdsl.ir.hardware.scale_factor_atoms import ROWS as ATOM_ROWS
from wsdsl.ir.hardware.swizzle import PACKED_LINES
from wsdsl.ir.hardware.tma_box import TMA_ALIGN
from wsdsl.ir.op import Kernel, Op, Problem, Region, Value, operands, regions, walk
from wsdsl.ir.op_fields import op_name
from wsdsl.ir.ops import ForWork, grid_of
from wsdsl.ir.tile_scheduler import tile_scheduler
from wsdsl.ir.types import Axis, Tile

MOST_ALIKE = 2
"""CTAs of a cluster that may share a contraction where tiles overlap: each adds its own sums first,
and of two that is the same either way."""
ORDER = "tiles with several accumulators cannot overlap: their accumulation order differs"


def why_apart(kernel: Kernel, loop: ops.ForTiles) -> str:
    """Why the tiles of a loop of a TILE kernel may not overlap; "" if they may."""
    axis = loop.index.as_axis
    if loop.init or loop.start is not None or loop.stop is not None:
        return "the loop carries variables, or covers a part of its dimension"
    if used := next((op for op in kernel.ops if _takes_place(op, loop.index)), None):
        return f"{op_name(type(used))} depends on where a tile begins"
    if any(_sums_along(op, axis.name) for op in walk(loop.body)):
        return "elements along it are reduced"
    stores = kernel.of(ops.Store)
    read = {op.tensor for op in kernel.of(ops.Load)}
    read |= {op.table for op in kernel.of(ops.Lookup)}
    if any(op.accumulate for op in stores):
        return "a store accumulates"
    if any(op.tensor in read for op in stores):
        return "a stored tensor is read as well"
    if len({op.tensor for op in stores}) < len(stores):
        return "two stores write the same tensor"
    own = {id(op) for op in walk(loop.body) if isinstance(op, ops.Store)}
    for store, around in _stores(kernel.body, ()):
        if id(store) in own and not {*around} <= {*store.index}:
            return "several iterations store an element"
    return ""


def unit_of(kernel: Kernel, index: Value) -> int:
    """Of how many elements the start of a tile must be a multiple."""
    units = [1]
    for op in kernel.ops:
        if isinstance(op, ops.Load) and op.packed and index in op.index[-2:]:
            units.append(PACKED_LINES)
        elif isinstance(op, ops.Load) and op.block > 1 and in_atoms(op) and index in op.index:
            units.append(ATOM_ROWS)
        elif isinstance(op, (ops.Load, ops.Store)) and op.index and op.index[-1] == index:
            units.append(ceil(Fraction(8 * TMA_ALIGN, op.tensor.as_tensor.dtype.bits)))
    return max(units)


def _takes_place(op: Op, index: Value) -> bool:
    """Whether it does anything with the place of a tile but read and write there."""
    return index in operands(op) and not isinstance(op, (ops.Load, ops.Store))


def _sums_along(op: Op, axis: str) -> bool:
    match op:
        case ops.Reduce() | ops.ReduceBlocks() | ops.Scan() | ops.TopK():
            return op.axis == axis
        case ops.Contract(a=Value(type=Tile(axes=a)), b=Value(type=Tile(axes=b))):
            return axis in a and axis in b
        case _:
            return False


def _stores(
    region: Region, around: tuple[Value, ...]
) -> Iterator[tuple[ops.Store, tuple[Value, ...]]]:
    """Stores, and the indices of the loops around them."""
    for op in region:
        if isinstance(op, ops.Store):
            yield op, around
        inner = (*around, op.index) if isinstance(op, ops.DimLoop) else around
        for body in regions(op):
            yield from _stores(body, inner)


def tile_overlaps_are_legal(kernel: Kernel) -> Iterator[Problem]:
    for op in kernel.of(ops.ForTiles):
        if not op.within:
            continue
        if told := why_apart(kernel, op):
            yield op, f"the last tile cannot overlap the one before: {told}"
        unit, axis = unit_of(kernel, op.index), op.index.as_axis
        if op.within % unit or axis.size % op.within:
            yield op, f"within={op.within} of {axis.size}: tiles begin at multiples of {unit}"


def partition_overlaps_agree(kernel: Kernel) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for op in kernel.of(ops.ForTiles, ForWork):
        walked = _walked(op)
        if any(first.setdefault(axis, within) != within for axis, within in walked):
            yield op, "partitions iterate over different tiles"
        alike = isinstance(op, ForWork) and 1 < op.sharing <= MOST_ALIKE
        if isinstance(op, ForWork) and op.contraction and any(op.within) and not alike:
            yield op, ORDER


def _walked(op: ops.ForTiles | ForWork) -> list[tuple[str, int]]:
    """The axes along which a loop walks tiles, each with its `within`."""
    found: list[tuple[Value, int]] = []
    if isinstance(op, ForWork):
        found += zip(op.index, op.within or (0,) * len(op.index), strict=False)
    else:
        found.append((op.index, op.within))
    return [(v.type.name, within) for v, within in found if isinstance(v.type, Axis)]


def overlapping_grids_only_write(kernel: Kernel) -> Iterator[Problem]:
    grid = grid_of(kernel)
    if grid is None or not grid.overlapping:
        return
    cut = tile_scheduler(grid.scheduler, grid.splits).splits_tiles
    if cut or grid.sharing > MOST_ALIKE:
        yield grid, ORDER
    found = list(touches(kernel))
    read = {touch.tensor for _, touch in found if not touch.writes}
    for op, touch in found:
        if touch.adds:
            yield op, "tiles overlap, so this store adds twice"
        elif touch.tensor in read and touch.writes:
            yield op, f"tiles overlap, and `{touch.tensor}` is read as well"
