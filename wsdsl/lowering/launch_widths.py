"""Tiles of axes that have several widths, of which each launch has one."""

from __future__ import annotations

from collections.abc import Sequence

from wsdsl.ir.barrier_ops import LaunchNarrowing
from wsdsl.ir.op import Op, Region, Value
from wsdsl.ir.pipeline_ops import ForWork
from wsdsl.ir.types import Axis
from wsdsl.lowering.builder import INT, Builder


def widths_of(index: Value) -> int:
    return index.type.widths if isinstance(index.type, Axis) else 1


def launch_narrowing(work: ForWork, builder: Builder) -> tuple[tuple[Op, ...], Value | None, int]:
    """What tells how wide the tiles of a launch are, the number, and which of the axes it is about;
    nothing where launches do not differ.
    """
    for place, index in enumerate(work.index):
        if (widths := widths_of(index)) > 1:
            made = builder.value("narrower", INT)
            return (LaunchNarrowing(result=made, widths=widths, loc=work.loc),), made, place
    return (), None, 0


def declared_in(body: Sequence[Op], declarations: Sequence[Op]) -> Region:
    """A kernel's body with declarations, behind what tells how wide tiles are."""
    told = 1 if body and isinstance(body[0], LaunchNarrowing) else 0
    return (*body[:told], *declarations, *body[told:])


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
