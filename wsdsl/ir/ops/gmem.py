"""SCHEDULED: workspaces, and accesses of threads to GMEM."""

from __future__ import annotations

import math
from collections.abc import Iterator

from wsdsl.ir.attribute_checks import BYTES, SIZE, between
from wsdsl.ir.effects import Access, Effects, Elements, whole
from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN
from wsdsl.ir.hardware.tma_box import box_fault
from wsdsl.ir.op import SCHEDULED, Makers, OneResult, Op, Value, op_class
from wsdsl.ir.ops.tma import Boxes, coordinate_faults, packing_faults
from wsdsl.ir.types import BOOL, Fragment, Tensor


@op_class(("partitioned", "scheduled"), "kernel", ranges=dict(each=SIZE), result=Tensor)
class AllocateGlobal(OneResult):
    """A workspace that the runtime allocates for one launch at a time: `each`
    rows of its first dimension per entry of the grid's tile scheduler. With `zeroed` it has zeros
    at first, and the kernel resets it to zeros; else it is undefined. With `fragments` its
    elements are in the order of registers: blocks of 64 rows by 8 columns, in each of them the 4
    elements of thread after thread of a warpgroup. It is then read and written as fragments
    of whole blocks only.
    """

    each: int
    zeroed: bool = False
    fragments: bool = False


@op_class(())
class _TileCopy(Op):
    """Base of ops that copy or prefetch a tile of `rows` x `columns` elements."""

    tensor: Value
    coordinates: tuple[Value, ...]
    row_dim: int
    rows: int
    columns: int

    def faults(self, made: Makers) -> Iterator[str]:
        tensor = self.tensor.as_tensor
        yield from coordinate_faults(self.coordinates, tensor)
        yield from packing_faults(tensor.dtype)
        if not -1 <= self.row_dim < len(tensor.dims) - 1:
            yield f"row_dim={self.row_dim} must be a dimension before the last"
        elif self.row_dim < 0 and self.rows != 1:
            yield f"{self.rows} rows need a `row_dim`"


@op_class(SCHEDULED, "warpgroup", ranges=dict(row_dim=between(-1, 4)))
class ThreadLoad(_TileCopy):
    """All 128 threads of the warpgroup copy a tile of `tensor` at `coordinates` to item
    `state.stage` of `shared`, `offset` bytes in, as panels: `rows` elements along `row_dim` (-1:
    one) and `columns` along the contiguous dimension. Elements outside the tensor are 0; the
    coordinates of rows and columns are not negative. Complete when it returns, in the generic
    proxy. Takes any stride and alignment.
    """

    swizzle: str
    shared: Value
    offset: int = 0
    state: Value

    def effects(self, made: Makers) -> Effects:
        size = self.rows * self.columns * self.tensor.as_tensor.dtype.bits // 8
        yield Access("read", "gmem", self.tensor)
        yield Access("write", "smem", self.shared, self.state, whole(self.offset, size))

    def faults(self, made: Makers) -> Iterator[str]:
        yield from super().faults(made)
        row, span = self.tensor.as_tensor.dtype.size(self.columns), SWIZZLE_SPAN[self.swizzle]
        if row % span:
            yield f"rows of {row} bytes are not a multiple of the swizzle span, {span}"


@op_class(SCHEDULED, "warpgroup", ranges=dict(apart=BYTES))
class ThreadStore(Boxes, Op):
    """The threads of each warp of the warpgroup copy their warp's quarter of item `item` of
    `shared`, a panel of the swizzle mode, to the `box` of `tensor` at `coordinates`; warp i's lies
    i boxes further along `row_dim`. It begins `apart` * i bytes in, or with 0 as far as quarters of
    the item are apart. Elements outside the tensor are dropped; the coordinates of rows and
    columns are not negative. Complete when it returns, in the generic proxy. Takes any stride and
    alignment. `accumulate` is as of `tma_store`.
    """

    tensor: Value
    coordinates: tuple[Value, ...]
    box: tuple[int, ...]
    swizzle: str
    row_dim: int
    shared: Value
    item: Value
    apart: int = 0
    accumulate: bool = False

    def effects(self, made: Makers) -> Effects:
        size = self.tensor.as_tensor.dtype.size(math.prod(self.box))
        yield Access("read", "smem", self.shared, self.item, self.spans(size))
        yield self.store(self.tensor, self.box)

    def faults(self, made: Makers) -> Iterator[str]:
        tensor = self.tensor.as_tensor
        yield from coordinate_faults(self.coordinates, tensor)
        if fault := box_fault(self.box, len(tensor.dims), tensor.dtype, self.swizzle):
            yield fault
        elif sum(extent > 1 for extent in self.box[:-1]) > 1:
            yield "the rows of a panel must run along one dimension"
        yield from self.box_faults(self.box, self.swizzle, tensor)


class ByElements:
    """Base of accesses to single elements of a tensor."""

    tensor: Value
    index: tuple[Value, ...]
    vector: int


@op_class(SCHEDULED, "any", repeatable=True, any_lanes=True)
class LoadGlobal(ByElements, OneResult):
    """Read `tensor` directly; the result is a scalar or fragment. `index` has one i32 scalar or
    fragment per dimension; they broadcast to the result's shape. Elements outside the tensor are 0.
    With `vector` this number of adjacent columns is aligned and contiguous in the last dimension:
    2, or the columns of a lane, of at most 16 bytes. `in_order`: not before the ops before it, so
    that it uses no registers until then. `only` (bools of rows): other rows are undefined.
    """

    tensor: Value
    index: tuple[Value, ...] = ()
    vector: int = 1
    in_order: bool = False
    only: Value | None = None

    def effects(self, made: Makers) -> Effects:
        yield Access("read", "gmem", self.tensor, elements=Elements(self.index))

    def faults(self, made: Makers) -> Iterator[str]:
        kind = self.result.type
        rows = Fragment(BOOL, kind.rows, 1) if isinstance(kind, Fragment) else None
        narrow = self.tensor.as_tensor.dtype.bits in (8, 16)
        if self.only is not None and (self.only.type != rows or not narrow):
            expected = "one bool per row, for elements of 8 or 16 bits"
            yield f"only has type {self.only.type}; expected {expected}"


@op_class(SCHEDULED, "any", any_lanes=True)
class StoreGlobal(ByElements, Op):
    """Write `value` directly, indexed like `load_global` (value and indices broadcast together);
    a value of one row or column is written once per warpgroup. `value` has the tensor's
    dtype. `accumulate` adds atomically. With `pred` (a bool scalar) only where it holds.
    """

    tensor: Value
    index: tuple[Value, ...] = ()
    value: Value
    vector: int = 1
    accumulate: bool = False
    pred: Value | None = None

    def effects(self, made: Makers) -> Effects:
        kind, elements = "add" if self.accumulate else "write", Elements(self.index)
        yield Access(kind, "gmem", self.tensor, elements=elements, pred=self.pred)


@op_class(SCHEDULED, "warpgroup", ranges=dict(row_dim=between(-1, 4)))
class PrefetchTile(_TileCopy):
    """All 128 threads of the warpgroup prefetch the tile that `thread_load` would copy to L2: the
    lines of L2 with every 128th byte of a row, but beyond the tensor's end. No thread waits."""
