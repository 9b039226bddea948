"""SCHEDULED: tensor maps, and TMA copies between GMEM and SMEM."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from wsdsl.ir.attribute_checks import ANY_ORDER, BYTES, between
from wsdsl.ir.effects import Access, Arrive, Effects, Elements, Span, Wait, scaled, whole
from wsdsl.ir.hardware.gmem_limits import ADDED_ATOMICALLY
from wsdsl.ir.hardware.swizzle import SMEM_ALIGN, SWIZZLE_SPAN, start_faults
from wsdsl.ir.hardware.tma_box import LINE_ALIGN, box_fault
from wsdsl.ir.hardware.wgmma_shapes import WIDTH_STEP
from wsdsl.ir.op import SCHEDULED, Makers, OneResult, Op, Value, op_class, with_fields
from wsdsl.ir.types import WARPS, DType, Shared, Tensor, TensorMap


class WarpBox(NamedTuple):
    """A box that a warp copies: its bytes of the item, and how many lines of panels that are not
    copied whole lie before it.
    """

    warp: int
    bytes: range
    line: int = 0


class Boxes:
    """Base of stores of boxes by the four warps, each from its part of an item."""

    coordinates: tuple[Value, ...]
    shared: Value
    row_dim: int
    apart: int
    accumulate: bool
    lines: int = 0
    line_dim: int = 0

    @property
    def part_bytes(self) -> int:
        """Bytes of the item from one warp's part to the next."""
        return self.apart or self.shared.type_as(Shared).bytes // WARPS

    def boxes(self, size: int) -> Iterator[WarpBox]:
        """Yield the boxes of `size` bytes that each of the four warps copies."""
        for warp in range(WARPS):
            start = warp * self.part_bytes
            if not self.lines:
                yield WarpBox(warp, range(start, start + size))
                continue
            # Warps share a panel's lines, or each has them all.
            each = self.part_bytes // size if self.row_dim == self.line_dim else 0
            for n in range(each or self.lines // WIDTH_STEP):
                line = (warp * each + n) * WIDTH_STEP
                if line < self.lines:
                    yield WarpBox(warp, range(start + n * size, start + (n + 1) * size), line)

    def spans(self, size: int) -> tuple[tuple[Span, ...], ...]:
        """Return the spans of the boxes of each warp."""
        boxes = [*self.boxes(size)]
        own = ([box.bytes for box in boxes if box.warp == warp] for warp in range(WARPS))
        return tuple([tuple([Span(x.start, len(x)) for x in warp]) for warp in own])

    def box_faults(self, box: tuple[int, ...], swizzle: str, tensor: Tensor) -> Iterator[str]:
        """Yield why the boxes of `tensor` cannot be copied from the parts of an item."""
        yield from packing_faults(tensor.dtype)
        if self.accumulate and tensor.dtype.name not in ADDED_ATOMICALLY:
            yield f"memory cannot add {tensor.dtype} elements"
        if not 0 <= self.row_dim < len(box):
            yield f"row_dim={self.row_dim} is not one of {len(box)} dimensions"
            return
        whole = 0 <= self.line_dim < len(box) - 1 and box[self.line_dim] == WIDTH_STEP
        if self.lines and not whole:
            yield f"a copy by rows needs boxes of {WIDTH_STEP} rows along `line_dim`"
            return
        size, item = tensor.dtype.size(math.prod(box)), self.shared.type_as(Shared).bytes
        boxes, unit = [*self.boxes(size)], 8 * SWIZZLE_SPAN[swizzle]
        apart, each = self.part_bytes, sum(size for one in boxes if not one.warp)
        if apart < each or boxes[-1].bytes.stop > item:
            yield f"4 boxes of {size} bytes, {apart} apart, exceed an item of {item} bytes"
        if self.apart % unit:
            yield f"a panel must start at a multiple of {unit} bytes"

    def store(self, tensor: Value, box: Sequence[int], asynchronous: bool = False) -> Access:
        """Return the access of all warps to the tensor."""
        extents = dict(enumerate(box))
        each = extents.get(self.row_dim, 0)
        extents[self.row_dim] = WARPS * each
        if self.lines:
            extents[self.line_dim] = self.lines
            by_line = self.row_dim == self.line_dim
            each *= self.part_bytes // tensor.as_tensor.dtype.size(math.prod(box)) if by_line else 1
        kind = "add" if self.accumulate else "write"
        elements = Elements(self.coordinates, tuple(extents.values()), (self.row_dim, each))
        return Access(kind, "gmem", tensor, asynchronous=asynchronous, elements=elements)

    def box_start(self, part: WarpBox, box: Sequence[int], at: Sequence[int]) -> tuple[int, ...]:
        """Return the first coordinates of a box of the op at coordinates `at`."""
        start, line_dim = list(at), self.line_dim if self.lines else None
        if self.row_dim != line_dim:
            start[self.row_dim] += part.warp * box[self.row_dim]
        if line_dim is not None:
            start[line_dim] += part.line
        return tuple(start)


@op_class(
    SCHEDULED, "kernel", ranges=dict(swizzle=ANY_ORDER, narrowed=between(0, 4)), result=TensorMap
)
class MakeTensorMap(OneResult):
    """The tensor map with which TMA copies boxes of `tensor`; `box` has its elements by dimensions
    of the tensor. A row of it is one swizzle span; without swizzle, any multiple of 16 bytes. With
    `narrower` the box has `narrower` elements fewer along the dimension `narrowed`.
    """

    tensor: Value
    box: tuple[int, ...]
    swizzle: str
    narrower: Value | None = None
    narrowed: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of the box."""
        return self.tensor.as_tensor.dtype.size(math.prod(self.box))

    def faults(self, made: Makers) -> Iterator[str]:
        tensor = self.tensor.as_tensor
        if fault := box_fault(self.box, len(tensor.dims), tensor.dtype, self.swizzle):
            yield fault
        if self.narrower is None and self.narrowed != 0:
            yield f"narrowed={self.narrowed!r} needs `narrower`, which is missing"
        elif self.narrower and self.narrowed >= len(self.box) - 1:
            yield f"narrowed={self.narrowed}: the last dimension of a box cannot be narrowed"

    def at_width(self, columns: int) -> Op:
        box = (n - columns * (dim == self.narrowed) for dim, n in enumerate(self.box))
        return with_fields(self, box=tuple(box), narrower=None, narrowed=0)


def coordinate_faults(coordinates: tuple[Value, ...], tensor: Tensor) -> Iterator[str]:
    if len(coordinates) != len(tensor.dims):
        yield f"{len(coordinates)} coordinates for a tensor of {len(tensor.dims)} dimensions"


def packing_faults(dtype: DType) -> Iterator[str]:
    if dtype.bits < 8:
        yield f"{dtype} has two elements per byte, which only tma_load can copy"


@op_class(())
class ByTensorMap(Op):
    """Base of copies by a tensor map."""

    map: Value
    coordinates: tuple[Value, ...]

    def tensor_map(self, made: Makers) -> MakeTensorMap | None:
        """Return the op that defines the tensor map."""
        op = made.get(self.map)
        return op if isinstance(op, MakeTensorMap) else None

    def faults(self, made: Makers) -> Iterator[str]:
        if map := self.tensor_map(made):
            yield from coordinate_faults(self.coordinates, map.tensor.as_tensor)
        else:
            yield "no make_tensor_map defines the tensor of this copy"


@op_class(SCHEDULED, "one")
class TmaLoad(ByTensorMap):
    """Start to copy the box at `coordinates` (i32, in the tensor's order) to item `state.stage` of
    `shared`, `offset` (and `shift`, an i32) bytes in; elements outside the tensor are 0. When done,
    the box's bytes, all of them, count on `barriers` at the state's stage. Run by one thread. It
    begins at multiples of 16 bytes of a row and of 128 of SMEM. With `multicast` (i32, a bit for
    each rank in the cluster) it goes to the same place in each of those CTAs, and counts there;
    with `cta` (i32, a rank) it counts on that CTA's barrier, which is of the same pair."""

    shared: Value
    offset: int = 0
    shift: Value | None = None
    state: Value
    barriers: Value
    multicast: Value | None = None
    cta: Value | None = None

    def effects(self, made: Makers) -> Effects:
        if not (map := self.tensor_map(made)):
            return
        yield Access("read", "gmem", map.tensor, asynchronous=True)
        spans = whole(self.offset, map.bytes, *scaled(self.shift, 1))
        where = self.shared, self.state, spans
        yield Access("write", "smem", *where, asynchronous=True, multicast=self.multicast)
        yield Arrive(
            "mbarrier",
            self.barriers,
            self.state,
            0,
            -map.bytes,
            "one",
            cta=self.cta,
            multicast=self.multicast,
        )

    def faults(self, made: Makers) -> Iterator[str]:
        yield from super().faults(made)
        if map := self.tensor_map(made):
            yield from start_faults(self.offset, map.swizzle)

    def item_align(self, made: Makers) -> int:
        map = self.tensor_map(made)
        return LINE_ALIGN if map and map.swizzle == "none" else SMEM_ALIGN


@op_class(
    SCHEDULED,
    "warpgroup",
    ranges=dict(apart=BYTES, lines=between(0, 256, 8), line_dim=between(0, 4)),
)
class TmaStore(Boxes, ByTensorMap):
    """One thread of each warp of the warpgroup starts to copy its warp's quarter of item `item` of
    `shared` to the box at `coordinates`; warp i's lies i boxes further along `row_dim`. It begins
    `apart` * i bytes in, or with 0 as far as quarters of the item are apart. Elements outside the
    tensor are dropped; it begins at a multiple of 16 bytes of a row. `accumulate` adds to the
    tensor, each element atomically; it is of f32, f16, bf16, i32 or u32. With `lines` only this
    number of lines of transposed panels (less `narrower`) is copied, by boxes of 8 lines along
    dimension `line_dim`, one after another in each warp's part.
    """

    row_dim: int
    shared: Value
    item: Value
    apart: int = 0
    accumulate: bool = False
    lines: int = 0
    line_dim: int = 0
    narrower: Value | None = None

    def effects(self, made: Makers) -> Effects:
        if map := self.tensor_map(made):
            where = self.shared, self.item, self.spans(map.bytes)
            yield Access("read", "smem", *where, asynchronous=True)
            yield self.store(map.tensor, map.box, asynchronous=True)

    def faults(self, made: Makers) -> Iterator[str]:
        yield from super().faults(made)
        if map := self.tensor_map(made):
            yield from self.box_faults(map.box, map.swizzle, map.tensor.as_tensor)
        if not self.lines and (self.narrower or self.line_dim):
            yield "a narrowed copy needs `lines`"

    def at_width(self, columns: int) -> Op:
        return with_fields(self, lines=self.lines - columns, narrower=None)


@op_class(SCHEDULED, "warpgroup")
class TmaStoreCommit(Op):
    """Close the group of TMA stores that each warp's storing thread has started."""

    def effects(self, made: Makers) -> Effects:
        yield Arrive("bulk", threads="warps")


@op_class(SCHEDULED, "warpgroup")
class TmaStoreWait(Op):
    """Each warp's storing thread waits until at most `pending` of its groups are not done: with
    `read`, done reading SMEM, else done writing too. The warp's other threads do not wait.
    """

    pending: int
    read: bool = True

    def effects(self, made: Makers) -> Effects:
        yield Wait("bulk", threads="warps", pending=self.pending, read=self.read)


@op_class(SCHEDULED, "one")
class PrefetchTensorMap(Op):
    """Bring a tensor map to the descriptor cache; run by one thread."""

    map: Value


@op_class(SCHEDULED, "one")
class PrefetchBox(ByTensorMap):
    """Prefetch the box that `tma_load` would copy from `coordinates` to L2; run by one thread,
    which does not wait. It is not an access: a later load sees writes to the box in between, since
    all SMs read GMEM through L2. So it may precede `griddep_wait`."""
