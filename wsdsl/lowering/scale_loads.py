"""Loads that lie beside the operands in a slot: what multiplies a product, one line a k-tile.

    %kb: i32 = block(axis=%k, size=128)
    %s: f32[m] = load(tensor=%a_scale, index=(%kb, %m))
    %b: i32[n] = map(fn="floordiv", args=(%n_index, %c128))
    %t: f32[n] = load(tensor=%b_scale, index=(%b, %kb))

Such a load varies with the loop of its product, so that consumers would wait for GMEM in each
iteration, and is small: TMA brings it with the operands, a box that is not swizzled. A box begins
at a multiple of 16 bytes of a row; where that is before the first value, threads read further in.
"""

import math
from collections.abc import Iterable

from wsdsl.ir.analysis.intervals import may_begin_anywhere
from wsdsl.ir.hardware.tma_box import MAX_RANK, TMA_ALIGN
from wsdsl.ir.op import Kernel, Makers, Op, Region, Value, once
from wsdsl.ir.ops import Block, Constant, Index, Load, Map, Store
from wsdsl.ir.types import Axis, Sizes
from wsdsl.record import record


@record
class ScaleLoad:
    """`places`: by dimension, the axis that runs along it and how many of its elements share an
    index; or None for an index that is a number.
    """

    load: Load
    places: tuple[tuple[Value, int] | None, ...]

    @property
    def axis(self) -> tuple[Value, int]:
        (found,) = (place for place in self.places if place is not None)
        return found

    def box(self, sizes: Sizes) -> tuple[int, ...]:
        """Elements by dimension, the last one's filled up to what TMA copies."""
        found = [1 if place is None else _extent(*place, sizes) for place in self.places]
        before = self.unit - 1 if self.is_rounded and found[-1] > 1 else 0
        found[-1] = -(-(before + found[-1]) // self.unit) * self.unit
        return tuple(found)

    @property
    def unit(self) -> int:
        """Elements in a line."""
        return TMA_ALIGN // self.element

    @property
    def is_rounded(self) -> bool:
        """Whether the box may begin before the values. Tiles begin at whole lines."""
        last = self.places[-1]
        return last is None or last[1] > 1

    def stride(self, sizes: Sizes) -> int:
        """Elements of the box from one index along the axis to the next."""
        (at,) = (i for i, place in enumerate(self.places) if place is not None)
        return math.prod(self.box(sizes)[at + 1 :])

    @property
    def element(self) -> int:
        return self.load.dtype.bytes


def _extent(axis: Value, every: int, sizes: Sizes) -> int:
    """Blocks of `every` elements that a tile reaches; one begins at a multiple of its size."""
    size = sizes[axis.as_axis.name]
    last = every - math.gcd(size, every)
    return (last + size - 1) // every + 1


@once
def kept_out(kernel: Kernel) -> frozenset[str]:
    """Tensors that TMA can not take, or that the kernel writes."""
    return frozenset({op.tensor.name for op in kernel.of(Store)} | {*kernel.unaligned})


def scale_load(op: Op, block: Region, made: Makers, out: Iterable[str]) -> ScaleLoad | None:
    """The op as a load beside the operands, in a block with products."""
    if not isinstance(op, Load) or op.tensor.name in out or len(op.index) > MAX_RANK:
        return None
    kind = op.result.as_tile
    varies = any(isinstance(made.get(v), Block) and made[v] in block for v in op.index)
    if len(kind.axes) != 1 or kind.dtype.bits != 32 or not varies:
        return None
    places: list[tuple[Value, int] | None] = []
    for value in op.index:
        if isinstance(value.type, Axis):
            places.append((value, 1))
        elif isinstance(made.get(value), (Block, Constant)):
            places.append(None)
        elif (found := blocks_of(value, made)) is not None:
            places.append(found)
        else:
            return None
    along = [place for place in places if place is not None]
    if any(may_begin_anywhere(made.get(axis), made) for axis, _ in along):
        return None
    return ScaleLoad(op, tuple(places)) if len(along) == 1 else None


def blocks_of(value: Value, made: Makers) -> tuple[Value, int] | None:
    """The axis and number of `index(axis) // number`."""
    match made.get(value):
        case Map(fn="floordiv", args=(x, y)):
            index, by = made.get(x), made.get(y)
            if isinstance(index, Index) and isinstance(by, Constant) and by.value > 0:
                return index.axis, int(by.value)
        case _:
            pass
    return None
