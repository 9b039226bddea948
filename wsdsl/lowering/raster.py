"""Which tile of a plane a work item is, in the order of the raster."""

from wsdsl.ir.op import Kernel, Op, Region, Value
from wsdsl.ir.ops import ClusterIndex, CtaIndex, ForRange, ForWork, LaunchNarrowing
from wsdsl.ir.types import Axis
from wsdsl.lowering.builder import INT, Builder


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


# Tile widths that are chosen at launch.
def widths_of(index: Value) -> int:
    return index.type.widths if isinstance(index.type, Axis) else 1


def launch_narrowing(work: ForWork, builder: Builder) -> tuple[tuple[Op, ...], Value | None, int]:
    """Return the op for the narrowing of a launch's tiles, its result, and the position of the
    axis; nothing if launches do not differ.
    """
    for place, index in enumerate(work.index):
        if (widths := widths_of(index)) > 1:
            made = builder.value("narrower", INT)
            return (LaunchNarrowing(result=made, widths=widths, loc=work.loc),), made, place
    return (), None, 0


def work_loop(kernel: Kernel, body: Region) -> ForRange | None:
    """Return the loop over work items, which starts at the index of the CTA or cluster."""
    made = kernel.definers
    loops = (op for op in body if isinstance(op, ForRange))
    first = (CtaIndex, ClusterIndex)
    return next((loop for loop in loops if isinstance(made.get(loop.start), first)), None)


class Widths:
    """Arithmetic with them; `narrower` is by how much the launch's are less than the widest."""

    def __init__(self, builder: Builder, narrower: Value | None) -> None:
        self.builder, self.narrower = builder, narrower

    def width(self, axis: Axis) -> Value:
        """Elements of a tile."""
        assert self.narrower is not None
        return self.builder.map("sub", self.builder.integer(axis.size), self.narrower, wish="width")

    def count(self, size: Value, index: Value, step: int, name: str) -> Value:
        """How many tiles a dimension has; of clusters `step` elements apart, if all are as wide."""
        b = self.builder
        if widths_of(index) == 1:
            return b.quotient_up(size, step, name)
        width = self.width(index.as_axis)
        last = b.map("sub", width, b.integer(1), wish="last")
        return b.map("floordiv", b.plus(size, last), width, wish=name)

    def begin(self, index: Value, place: Value) -> Value:
        """Where a tile begins."""
        axis, name = index.as_axis, f"{index.name}_start"
        if axis.widths > 1:
            return self.builder.map("mul", place, self.width(axis), wish=name)
        return self.builder.times(place, axis.size, name)

    def before(self, end: Value, axis: Axis) -> Value:
        """Where the tile begins that ends there."""
        if axis.widths > 1:
            return self.builder.map("sub", end, self.width(axis), wish="fitted")
        return self.builder.plus(end, -axis.size, "fitted")
