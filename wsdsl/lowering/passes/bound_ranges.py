"""Keep parts of dimensions within them, and see which tiles may reach over the part's end.

Before:
    for_tiles(index=%q: axis<q of S by 128 rows>) {
      %b: i32 = load(tensor=%stop, index=(%q0,))
      for_tiles(index=%t: axis<t of T by 64>, start=%a, stop=%b, init=..., args=...) {
After:
    for_tiles(index=%q: axis<q of S by 128 rows>) {
      %b: i32 = load(tensor=%stop, index=(%q0,))
      %first: i32 = map(fn="max", args=(%a, %zero))
      %last: i32 = map(fn="min", args=(%b, %size_T))
      for_tiles(index=%t: axis<t of T by 64>, start=%first, stop=%last, clipped=True, shifted=True,
                init=..., args=...) {

A tile that reaches over the part's end has elements there that are none: they are masked, stores
leave them out, and what the tensor cores sum over is cleared. Nothing of that is needed where a
tile ends with the part, or with the dimension: `tiles(0, end(q), of=S)` walks whole tiles, if a
tile of `q` has a whole number of them.

TMA copies from multiples of 16 bytes of a row on, and threads load whole bytes of elements of 4
bits. Along a contiguous dimension the first tile begins there, and has elements from `first` on. A
loop without an element ends where it begins:

      %first: i32 = map(fn="max", args=(%a, %zero))
      %even: i32 = map(fn="sub", args=(%first, %rest))
      %any: bool = map(fn="lt", args=(%first, %last))
      %end: i32 = map(fn="where", args=(%any, %last, %even))
      for_tiles(index=%k: axis<k of K by 64>, start=%even, stop=%end, first=%first, ...) {

Why here: tile sizes are known, and which loops overlap their tiles.
"""

from wsdsl.ir.analysis.intervals import walks_a_part
from wsdsl.ir.hardware.tma_box import TMA_ALIGN
from wsdsl.ir.op import Kernel, Makers, Region, Value, with_fields
from wsdsl.ir.ops import Constant, DimSize, End, ForTiles, Load, Map
from wsdsl.ir.rewriter import Namer, with_regions
from wsdsl.ir.types import Axis
from wsdsl.lowering.buffer_assignment import operand_slots
from wsdsl.lowering.builder import INT, Builder
from wsdsl.lowering.reads import along


def bound_ranges(kernel: Kernel) -> Kernel:
    if not any(walks_a_part(op) for op in kernel.ops):
        return kernel
    return kernel.with_body(_Ranges(kernel).region(kernel.body))


class _Ranges:
    def __init__(self, kernel: Kernel) -> None:
        self.builder = Builder(Namer.of(kernel))
        self.static = dict(kernel.sizes)
        self.made: Makers = kernel.definers
        self.units = _units(kernel, self.made)
        self.loops: dict[Value, ForTiles] = {}
        """By their index: those that stand around."""

    def region(self, region: Region) -> Region:
        with self.builder.region() as ops:
            for op in region:
                if isinstance(op, ForTiles):
                    op = self.loops[op.index] = self.bounded(op) if walks_a_part(op) else op
                self.builder.add(with_regions(op, self.region))
        return tuple(ops)

    def bounded(self, op: ForTiles) -> ForTiles:
        axis = op.index.as_axis
        b = self.builder
        b.loc = op.loc
        stop = None if op.stop is None or self.is_whole(op.stop, axis) else op.stop
        shifted = op.start is not None and not self.is_multiple(op.start, axis, axis.size)
        clipped = stop is not None and (shifted or not self.is_multiple(stop, axis, axis.size))
        size = b.size(axis.dim, self.static.get(axis.dim))
        end = stop and self.end_of_tile(stop)
        if stop is not None and (end is None or end.dim != axis.dim):
            stop = b.map("min", stop, size, wish="last")
        start, first, unit = op.start, None, self.units.get(op.index, 1)
        if start is not None and not self.at_least_zero(start):
            start = b.map("max", start, b.integer(0), wish="first")
        if op.start and start and shifted and not self.is_multiple(op.start, axis, unit):
            first, end = start, stop or size
            start = b.map("sub", first, b.remainder(first, unit), wish="even")
            some = b.map("lt", first, end, wish="some")
            stop = b.map("where", some, end, start, type=INT, wish="end")
        return with_fields(
            op, start=start, stop=stop, first=first, clipped=clipped, shifted=shifted
        )

    def number(self, value: Value) -> int | None:
        op = self.made.get(value)
        return int(op.value) if isinstance(op, Constant) else None

    def at_least_zero(self, value: Value) -> bool:
        number = self.number(value)
        return number >= 0 if number is not None else isinstance(self.made.get(value), End)

    def is_whole(self, stop: Value, axis: Axis) -> bool:
        """Whether it is the dimension's size."""
        op, number = self.made.get(stop), self.number(stop)
        known = number is not None and number == self.static.get(axis.dim)
        return known or (isinstance(op, DimSize) and op.dim == axis.dim)

    def end_of_tile(self, value: Value) -> Axis | None:
        op = self.made.get(value)
        return op.axis.type if isinstance(op, End) and isinstance(op.axis.type, Axis) else None

    def is_multiple(self, value: Value, axis: Axis, size: int) -> bool:
        """Whether it is a multiple of `size`, or the end of the dimension."""
        number, op = self.number(value), self.made.get(value)
        if size == 1:
            return True
        if number is not None:
            return number % size == 0 or number <= 0
        match op:
            case End() if (end := self.end_of_tile(value)) is not None:
                walked = self.loops.get(op.axis)
                even = walked is None or not (walked.within or walked.clipped or walked.shifted)
                return even and end.dim == axis.dim and end.size % size == 0
            case Map(fn="mul", args=args) if size & (size - 1) == 0:
                # Whole numbers that wrap keep their lower bits alone.
                return any((n := self.number(v)) is not None and n % size == 0 for v in args)
            case _:
                return False


def _units(kernel: Kernel, made: Makers) -> dict[Value, int]:
    """By axis: of how many elements the start of a tile must be a multiple, for TMA to copy it, or
    for threads to load bytes that hold two elements.
    """
    found: dict[Value, int] = {}
    loads = (e.load for g in operand_slots(kernel) for e in g.operands if e.producer == "load")
    for load in loads:
        if load.tensor.name not in kernel.unaligned:
            unit, last = load.dtype.count(TMA_ALIGN), load.index[-1]
            found[last] = max(found.get(last, 1), unit)
    for load in kernel.of(Load):
        if load.dtype.bits == 4:
            last, _ = along(load.index[-1], made, dict(kernel.sizes))
            found.setdefault(last, 2)
    return found
