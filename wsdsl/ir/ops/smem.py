"""SCHEDULED: SMEM, tensor maps, TMA copies and direct accesses to global memory.

A tile lies in SMEM as *panels*: its contiguous axis (`columns`) is cut into spans of the swizzle
mode's width (128, 64 or 32 bytes; "none": 16), and each panel is `rows` lines of one span, panels
one after another. Bits of the address are exchanged within a panel as TMA does (`swizzle_address`
in `ir/hardware/swizzle.py`). An item starts at a multiple of 1024 bytes, so do the 8-row atoms of
its panels.
"""

from __future__ import annotations

from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN
from wsdsl.ir.op import OneResult, Op, Value, op_class
from wsdsl.ir.ops.mbarrier import SCHEDULED


@op_class(SCHEDULED, "kernel")
class AllocateShared(OneResult):
    """SMEM for `num` items of `bytes` bytes (see its type), at `offset` (-1: not placed)."""

    label: str
    offset: int = -1


@op_class(("partitioned", "scheduled"), "kernel")
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


@op_class(SCHEDULED, "kernel")
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


@op_class(SCHEDULED, "one")
class TmaLoad(Op):
    """Start to copy the box at `coordinates` (i32, in the tensor's order) to item `state.stage` of
    `shared`, `offset` (and `shift`, an i32) bytes in; elements outside the tensor are 0. When done,
    the box's bytes, all of them, count on `barriers` at the state's stage. Run by one thread. It
    begins at multiples of 16 bytes of a row and of 128 of SMEM. With `multicast` (i32, a bit for
    each rank in the cluster) it goes to the same place in each of those CTAs, and counts there;
    with `cta` (i32, a rank) it counts on that CTA's barrier, which is of the same pair."""

    map: Value
    coordinates: tuple[Value, ...]
    shared: Value
    offset: int = 0
    shift: Value | None = None
    state: Value
    barriers: Value
    multicast: Value | None = None
    cta: Value | None = None


@op_class(SCHEDULED, "warpgroup")
class ThreadLoad(Op):
    """All 128 threads of the warpgroup copy a tile of `tensor` at `coordinates` to item
    `state.stage` of `shared`, `offset` bytes in, as panels: `rows` elements along `row_dim` (-1:
    one) and `columns` along the contiguous dimension. Elements outside the tensor are 0; the
    coordinates of rows and columns are not negative. Complete when it returns, in the generic
    proxy. Takes any stride and alignment.
    """

    tensor: Value
    coordinates: tuple[Value, ...]
    row_dim: int
    rows: int
    columns: int
    swizzle: str
    shared: Value
    offset: int = 0
    state: Value


@op_class(SCHEDULED, "warpgroup")
class ClearPanels(Op):
    """All 128 threads of the warpgroup write zeros to parts of the tile of `rows` x `columns`
    elements of `dtype` that lies as panels in item `state.stage` of `shared`, `offset` bytes in:
    to the elements of each line that are not from `begin` to `end` (i32), or with `lines` to all of
    the lines that are not. Complete when it returns, in the generic proxy. No other thread may
    access the tile meanwhile.
    """

    shared: Value
    offset: int = 0
    state: Value
    begin: Value
    end: Value
    lines: bool = False
    dtype: str
    rows: int
    columns: int
    swizzle: str


@op_class(SCHEDULED, "warpgroup")
class StoreShared(Op):
    """Each warp of the warpgroup writes its 16 rows of the fragment `value` (64 x w) to its quarter
    of item `item` (i32) of `shared`: warp i at i * bytes / 4, as one panel of the swizzle mode:
    16 lines of w elements, or `transposed` w lines of 16 elements. A line is one span; without
    swizzle it is any multiple of 16 bytes, and the next one follows it, as TMA has it. `joined`:
    the warps' transposed panels are one, of w lines of 64 elements, so they must synchronize. With
    `half` 1 or 2 a warp's panel has 32 rows, and these are the first or the last 16; of
    `transposed` lines of 32 elements each they are the first or the last half.

    With a `state` it is lines from `start` (i32) on of the panels of a tile of `rows` lines in item
    `state.stage`, `offset` bytes in, those of warps `apart`; the last panel may be filled in part.
    """

    value: Value
    shared: Value
    item: Value | None = None
    state: Value | None = None
    offset: int = 0
    start: Value | None = None
    rows: int = 0
    swizzle: str
    transposed: bool = False
    joined: bool = False
    half: int = 0
    apart: int = 16

    @property
    def before(self) -> int:
        """Bytes of the warp's panel before its rows."""
        kind = self.value.as_fragment
        return 16 * kind.dtype.size(kind.columns) if self.half == 2 and not self.transposed else 0

    @property
    def along(self) -> int:
        """Bytes of each line before its elements."""
        kind = self.value.as_fragment
        return kind.dtype.size(16) if self.half == 2 and self.transposed else 0

    @property
    def line(self) -> int:
        """Elements of a line, if lines are columns."""
        return 64 if self.joined else 32 if self.half else 16

    @property
    def panels(self) -> int:
        """Panels that the fragment reaches, of a tile."""
        kind = self.value.as_fragment
        return -(-kind.dtype.size(kind.columns) // SWIZZLE_SPAN[self.swizzle])


@op_class(SCHEDULED, "warps")
class LoadShared(OneResult):
    """The threads of each warp, together, read elements of two or four bytes from item
    `state.stage` of `shared`, from the `bytes` bytes that begin `offset` bytes in: the element
    `first` (an i32; 0 without) plus `index` (an i32 scalar or fragment) times `stride`. The result
    has the index's shape. TMA may overwrite the item behind a `fence_async_proxy` of each thread.
    """

    shared: Value
    offset: int = 0
    state: Value
    bytes: int
    first: Value | None = None
    index: Value
    stride: int = 1


@op_class(SCHEDULED, "warpgroup")
class LoadPanels(OneResult):
    """Each warp of the warpgroup reads its 16 rows of a fragment (64 x w; or a tile of one line) in
    item `state.stage` of `shared`: lines `start` (i32) to `start` + 64 of the panels of a tile of
    `rows` lines, `offset` bytes in; or those of warps are `apart` lines apart. The stage may be
    released after a `fence_async_proxy`.
    """

    shared: Value
    offset: int = 0
    state: Value
    start: Value | None = None
    rows: int = 1
    swizzle: str
    apart: int = 16


@op_class(SCHEDULED, "warpgroup")
class StorePartials(Op):
    """Each warp reduces its columns of the fragment `x` by `fn` ("add", "max" or "min"; f32, or
    integers of 32 bits), and writes the results of its rows, words of four bytes, to the item of
    `shared` at the state's stage, or the first, from `offset` on: parts one after another, of as
    many words as `x` has rows; one column is written unchanged. Warps that share rows have
    a part each, from `part` (i32; 0 without) times as many on; warpgroups that have separate rows,
    `each` parts, one after another. With `barriers` it goes to each of `ctas`, all of
    the cluster, where its bytes are then counted (st.async). With `over_rows` it reduces its rows,
    to a part with a word a column; `part` is the warpgroup.
    """

    fn: str
    x: Value
    shared: Value
    offset: int = 0
    over_rows: bool = False
    part: Value | None = None
    each: int = 0
    ctas: int = 1
    barriers: Value | None = None
    state: Value | None = None


@op_class(SCHEDULED, "warpgroup")
class ReducePartials(OneResult):
    """Each thread of the warpgroup reduces, in order, the words that `store_partials` wrote for its
    rows, or columns (`over_rows`), of `parts` parts. The item, `offset` and `each` as there.
    """

    fn: str
    shared: Value
    offset: int = 0
    over_rows: bool = False
    parts: int
    each: int = 0
    state: Value | None = None


@op_class(SCHEDULED, "warpgroup")
class SendFragment(Op):
    """Each thread of the warpgroup starts to write what it holds of the fragment `value` (64 x w,
    elements of four bytes) to item `state.stage` of `shared` of CTA `cta` (i32, a rank in the
    cluster), `offset` (and `shift`, an i32) bytes in: blocks of 64 x 8, in each of them the 4
    elements that thread after thread holds. When they are there, its bytes are counted on that
    CTA's `barriers` at the state's stage (st.async).
    """

    value: Value
    shared: Value
    offset: int = 0
    shift: Value | None = None
    state: Value
    barriers: Value
    cta: Value


@op_class(SCHEDULED, "warpgroup")
class ReceiveFragment(OneResult):
    """Read a fragment (64 x w) that `send_fragment` wrote to item `state.stage` of `shared`,
    `offset` (and `shift`, an i32) bytes in: each thread what that of its number has sent.
    """

    shared: Value
    offset: int = 0
    shift: Value | None = None
    state: Value


@op_class(SCHEDULED, "warpgroup")
class TmaStore(Op):
    """One thread of each warp of the warpgroup starts to copy its warp's quarter of item `item` of
    `shared` to the box at `coordinates`; warp i's lies i boxes further along `row_dim`. It begins
    `apart` * i bytes in, or with 0 as far as quarters of the item are apart. Elements outside the
    tensor are dropped; it begins at a multiple of 16 bytes of a row. `accumulate` adds to the
    tensor, each element atomically; it is of f32, f16, bf16, i32 or u32. With `lines` only this
    number of lines of transposed panels (less `narrower`) is copied, by boxes of 8 lines along
    dimension `line_dim`, one after another in each warp's part.
    """

    map: Value
    coordinates: tuple[Value, ...]
    row_dim: int
    shared: Value
    item: Value
    apart: int = 0
    accumulate: bool = False
    lines: int = 0
    line_dim: int = 0
    narrower: Value | None = None


@op_class(SCHEDULED, "warpgroup")
class ThreadStore(Op):
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


@op_class(SCHEDULED, "warpgroup")
class TmaStoreCommit(Op):
    """Close the group of TMA stores that each warp's storing thread has started."""


@op_class(SCHEDULED, "warpgroup")
class TmaStoreWait(Op):
    """Each warp's storing thread waits until at most `pending` of its groups are not done: with
    `read`, done reading SMEM, else done writing too. The warp's other threads do not wait.
    """

    pending: int
    read: bool = True


@op_class(SCHEDULED, "any")
class LoadGlobal(OneResult):
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


@op_class(SCHEDULED, "any")
class StoreGlobal(Op):
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
