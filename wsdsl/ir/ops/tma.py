"""SCHEDULED: tensor maps, and TMA copies between GMEM and SMEM."""

from __future__ import annotations

from wsdsl.ir.op import SCHEDULED, OneResult, Op, Value, op_class


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
class TmaStoreCommit(Op):
    """Close the group of TMA stores that each warp's storing thread has started."""


@op_class(SCHEDULED, "warpgroup")
class TmaStoreWait(Op):
    """Each warp's storing thread waits until at most `pending` of its groups are not done: with
    `read`, done reading SMEM, else done writing too. The warp's other threads do not wait.
    """

    pending: int
    read: bool = True


@op_class(SCHEDULED, "one")
class PrefetchTensorMap(Op):
    """Bring a tensor map to the descriptor cache; run by one thread."""

    map: Value


@op_class(SCHEDULED, "one")
class PrefetchBox(Op):
    """Prefetch the box that `tma_load` would copy from `coordinates` to L2; run by one thread,
    which does not wait. It is not an access: a later load sees writes to the box in between, since
    all SMs read GMEM through L2. So it may precede `griddep_wait`."""

    map: Value
    coordinates: tuple[Value, ...]
