"""Which tile of a plane a work item is, in the order of the raster."""

from __future__ import annotations

from wsdsl.ir.op import Value
from wsdsl.ir.pipeline_ops import ForWork
from wsdsl.ir.types import Axis
from wsdsl.lowering.builder import Builder


def place_in_plane(b: Builder, op: ForWork, inside: Value, counts: list[Value]) -> list[Value]:
    """Places along the last two axes."""
    above, swizzle = op.index[-2], op.swizzle
    rows, columns = counts[-2:]
    if isinstance(above.type, Axis) and op.raster in (above.name, above.type.name):
        column, row = _in_bands(b, inside, columns, rows, swizzle)
        return [row, column]
    return list(_in_bands(b, inside, rows, columns, swizzle))


def _in_bands(
    b: Builder, inside: Value, rows: Value, columns: Value, swizzle: int
) -> tuple[Value, Value]:
    """Groups of `swizzle` rows are walked column by column, so that CTAs that run together share
    what they load.
    """
    if swizzle == 1:
        return (
            b.map("floordiv", inside, columns, wish="row"),
            b.map("mod", inside, columns, wish="column"),
        )
    group_size = b.times(columns, swizzle, "group_size")
    group = b.map("floordiv", inside, group_size, wish="group")
    in_group = b.map("mod", inside, group_size, wish="in_group")
    first = b.times(group, swizzle, "first_row")
    left = b.map("sub", rows, first, wish="rows_left")
    # At least one row is left; said so, the divisions below are unsigned ones.
    some = b.map("max", left, b.integer(1), wish="rows_left")
    height = b.map("min", some, b.integer(swizzle), wish="group_rows")
    row = b.map("add", first, b.map("mod", in_group, height), wish="row")
    return row, b.map("floordiv", in_group, height, wish="column")
