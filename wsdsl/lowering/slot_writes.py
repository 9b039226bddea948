"""Writes of threads to stages: fragments, in the panels that TMA would fill; and zeros outside of
the part of a dimension that an MMA contracts.

    %part: bool = map(fn="lt", args=(%left, %whole))
    if(cond=%part) {
      if(cond=%first) {
        clear_panels(shared=%slots, offset=16384, state=%s, begin=%c0, end=%left, lines=True, ...)
      }
      fence_async_proxy()
      named_barrier_sync(barrier=8, num_warpgroups=2)
    }

TMA fills a tile with zeros outside of the tensor, and with its elements outside of the part: these
may be NaN or infinite, and their product with 0 is NaN. So one warpgroup writes zeros, in the first
and the last tile alone, with a proxy fence, and all readers of the stage synchronize.
"""

from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN
from wsdsl.ir.hardware.tcgen05_shapes import cell_columns
from wsdsl.ir.op import Region, Value, regions, walk
from wsdsl.ir.types import DType, SharedTile
from wsdsl.lowering.elementwise import with_zeros_outside
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.product_operands import operand_lines
from wsdsl.lowering.register_tiles import RegisterTile, joined


def clear_beyond(context: PartitionContext, op: ops.TileInShared) -> None:
    """Clear the tiles of a stage at the first tile after the wait."""
    clipped = {name for name, tile in context.tiles.items() if tile.is_clipped}
    tiles = _beside(op, context.partition.body) if clipped else []
    if not tiles or tiles[0] is not op:
        return
    summed = {tile: _summed_over(tile.result, context.partition.body) for tile in tiles}
    for name in sorted(clipped & set[str]().union(*summed.values())):
        _clear(context, name, [tile for tile in tiles if name in summed[tile]])


def clears(partition: ops.Partition) -> set[str]:
    """Return the contraction axes whose tiles may have elements outside of a part of a
    dimension.
    """
    inner = [*walk(partition.body)]
    clipped = {
        op.result.as_axis.name for op in inner if isinstance(op, ops.AxisAt) and op.is_clipped
    }
    return clipped & {axis for op in inner if isinstance(op, ops.Contract) for axis in op.summed}


def _beside(op: ops.TileInShared, body: Region) -> list[ops.TileInShared]:
    """Return all tiles of the stage, in order; each branch of an `if` may have a wait."""
    if op not in body:
        inner = (_beside(op, region) for outer in body for region in regions(outer))
        return next((tiles for tiles in inner if tiles), [])
    tiles = [tile for tile in body if isinstance(tile, ops.TileInShared)]
    return [tile for tile in tiles if (tile.shared, tile.state) == (op.shared, op.state)]


def _summed_over(tile: Value, body: Region) -> set[str]:
    """The axes of the tile that products sum over."""
    products = (op for op in walk(body) if isinstance(op, ops.Contract) and tile in (op.a, op.b))
    return {axis for op in products for axis in op.summed}


def _clear(context: PartitionContext, name: str, tiles: list[ops.TileInShared]) -> None:
    """Clear the elements beyond the end along an axis."""
    b, axis, loc = context.builder, context.axes[name], tiles[0].loc
    own = context.tiles[name]
    start, first, stop = own.start, own.first, own.stop
    begin, end = b.integer(0), b.integer(axis.size)
    whole = b.map("min", b.map("sub", context.size(axis), start), end, wish="whole")
    if first is not None:
        begin = b.map("max", b.map("sub", first, start), begin, wish="begin")
    if stop is not None:
        end = b.map("min", b.map("sub", stop, start), whole, wish="end")
    # One question, so that there are but two ways on. A last tile may have fewer elements.
    held = whole if stop is None else end
    part = b.map("lt", b.map("sub", held, begin), whole, wish="part")
    clear = [_panels(context, name, tile, (begin, end)) for tile in tiles]
    by_one = context.partition.role == "mma"
    if by_one:
        context.sync(loc)  # One thread has waited for the stage.
    with b.when(part):
        if context.num_warpgroups > 1:
            with b.when(b.map("eq", context.warpgroup, b.integer(0), wish="first")):
                b.ops += clear
        else:
            b.ops += clear
        b.fence_smem()
        context.sync(loc)
    if by_one:
        b.fence_tmem(after=True)


def _panels(
    context: PartitionContext, name: str, op: ops.TileInShared, inside: tuple[Value, Value]
) -> ops.ClearPanels:
    """Of a tile that has the elements `inside` along the axis."""
    kind = op.result.type_as(SharedTile)
    rows, last = (context.axes[x] for x in kind.axes)
    shares = last.size // context.shapes.own(last.name)
    swizzle, columns = operand_lines(last.size, kind.dtype, last.role, shares)
    where = dict[str, Any](shared=op.shared, offset=op.offset, state=op.state, loc=op.loc)
    where |= dict(begin=inside[0], end=inside[1], lines=rows.name == name)
    panels = dict[str, Any](rows=rows.size, columns=columns, swizzle=swizzle)
    return ops.ClearPanels(dtype=kind.dtype.name, **panels, **where)


def write_to_slot(
    op: ops.StoreInShared | ops.StoreInTensor, pieces: RegisterTile, context: PartitionContext
) -> None:
    """Write a tile with zeros where the contraction has no elements."""
    kind, axis = op.value.as_tile, op.summed.as_axis
    pieces = with_zeros_outside(op.value, pieces, context, axis.name)
    if isinstance(op, ops.StoreInTensor):
        _write_columns(op.columns, op, pieces, kind.dtype, context)
    else:
        _write_panels(op, pieces, kind.dtype, context)


def write_back(op: ops.SumToTensor, pieces: RegisterTile, context: PartitionContext) -> None:
    """Write the function of an accumulator back to TMEM."""
    _write_columns(op.sums, op, pieces, op.value.as_tile.dtype, context)


def _write_columns(
    columns: Value,
    op: ops.StoreInTensor | ops.SumToTensor,
    pieces: RegisterTile,
    dtype: DType,
    context: PartitionContext,
) -> None:
    """Write fragment by fragment."""
    several = context.num_warpgroups > 1
    apart = cell_columns(dtype, pieces.shape.width) if several else 0
    where = dict[str, Any](columns=columns, state=op.state, apart=apart, loc=op.loc)
    for i, j in pieces.shape.places():
        value = pieces.get(i, j)
        column = op.column + cell_columns(dtype, pieces.shape.first_column(j))
        context.builder.add(ops.Tcgen05St(value=value, column=column, half=i, **where))


def _write_panels(
    op: ops.StoreInShared, pieces: RegisterTile, dtype: DType, context: PartitionContext
) -> None:
    """Write row block by row block, as many fragments at a time as fill lines."""
    b, shape, span = context.builder, pieces.shape, SWIZZLE_SPAN[op.swizzle]
    assert shape.rows is not None
    rows = context.axes[shape.rows].size
    last = len(shape.widths) - 1
    where = dict[str, Any](shared=op.shared, state=op.state, swizzle=op.swizzle, loc=op.loc)
    where |= dict(rows=rows, apart=shape.apart)
    for i in range(shape.blocks):
        parts, first = list[Value](), 0
        for j in range(len(shape.widths)):
            if not parts:
                first = shape.first_column(j)
            parts.append(pieces.get(i, j))
            if j < last and (shape.first_column(j + 1) - first) * dtype.bytes % span:
                continue
            line, start = joined(b, parts, "line"), context.row_in_tile(shape.rows, i)
            offset = op.offset + first * dtype.bytes // span * rows * span
            b.add(ops.StoreShared(value=line, start=start, offset=offset, **where))
            parts = []
