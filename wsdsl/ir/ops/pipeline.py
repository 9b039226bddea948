"""PARTITIONED: warp specialization. Partitions, their common work loop, and the pipelines between
them, whose stages have separate ops (`stage.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wsdsl.ir.op import (
    PARTITIONED,
    Kernel,
    ManyResults,
    OneResult,
    Op,
    Region,
    Unary,
    binds,
    inside,
    once,
    op_class,
)
from wsdsl.ir.types import Axis, Ring, Tile, Value


class TakesStage:
    """Of ops that take the next stage of `ring`, or skip it."""

    ring: Any


@op_class(PARTITIONED, was="circular_buffer", result=Ring)
class Pipeline(OneResult):
    """A pipeline of `depth` stages in SMEM, or with `space` "TMEM" in tensor memory. A stage has
    the tiles of one of `layouts`: it is as large as the largest layout, so that loops with
    different operands share the pipeline. `consumers` warpgroups read a stage and release it. Where
    CTAs of a cluster copy to each other's stages, `multicast` has the groups of ranks that share a
    tile (see `load_to_slot`), and each consumer releases a stage to all CTAs that copy to it. Where
    two partitions load, both acquire every stage, and each fills its fields. With `parts` a tile
    passes through in parts of these numbers of columns, each in its stage: so tiles without an MMA,
    like a residual, are loaded while the part before is read. With `senders` its stages are filled
    by `senders` other CTAs of the cluster, which send accumulators (see `cluster_reduce`). With
    `block` tiles are scale factors in tensor memory, equal in `block` elements of their last axis.
    """

    depth: int
    layouts: tuple[tuple[Tile, ...], ...]
    consumers: int = 1
    multicast: tuple[tuple[tuple[int, int], ...], ...] = ()
    parts: tuple[int, ...] = ()
    senders: int = 0
    space: str = "SMEM"
    block: int = 0


@op_class(("partitioned", "scheduled"), "kernel")
class Partition(Op):
    """`num_warps` warps that run `body` in the given role ("load", "decode", "scale", "mma",
    "compute") with `registers` registers per thread. Partitions run at the same time; warpgroups,
    of four warps, are numbered in the order of the partitions. Warpgroup g computes the g-th part
    of a tile's rows, or with `share` of its columns. A partition of one warp is the next warp of
    the warpgroup before it, and has that one's registers: outside of `elect` it may have nothing
    but scalars.

    The rest is for lowering, and gone from the level SCHEDULED. A warpgroup stores its results
    through `staging` buffers. With `in_order` threads load from global memory at the first use,
    else as early as registers allow; with `late_loads` factors of an MMA are
    loaded after its issue, else before. With `copies_ahead` threads that copy operands prefetch
    later ones to L2, and a thread that loads by TMA prefetches those of `asks_early` (tensors, with
    a number of iterations each) before `griddepcontrol.wait`. With `order_barriers` its warpgroups
    alternate in each iteration of a loop with back-to-back MMAs.
    """

    role: str
    num_warps: int = 4
    share: str = "rows"
    registers: int = 0
    staging: int = 1
    in_order: bool = False
    late_loads: bool = False
    copies_ahead: bool = False
    asks_early: tuple[tuple[str, int], ...] = ()
    order_barriers: bool = False
    body: Region = ()

    @property
    def num_warpgroups(self) -> int:
        """Whole warpgroups of the partition."""
        return self.num_warps // 4

    @property
    def num_agents(self) -> int:
        """The number of warpgroups that run the body, or one thread."""
        return max(1, self.num_warpgroups)


@once
def enclosing_partitions(kernel: Kernel) -> Mapping[int, Partition]:
    """Return the partition of each op that is in one, by the op's id."""
    return {id(op): p for p in kernel.of(Partition) for op in inside(p)}


def num_warpgroups(kernel: Kernel) -> int:
    """Return the number of warpgroups of a CTA."""
    return sum(p.num_warpgroups for p in kernel.of(Partition))


def with_partitions(
    kernel: Kernel, change: Callable[[Partition], Partition], role: str = ""
) -> Kernel:
    """The kernel with each partition changed, or each of the role; the same one if none is."""

    def changed(op: Op) -> Op:
        return change(op) if isinstance(op, Partition) and role in ("", op.role) else op

    return kernel.with_body(tuple(map(changed, kernel.body)))


@op_class(PARTITIONED)
class ForWork(Op):
    """Iterate over the output tiles that the tile scheduler gives this CTA; every partition with
    the same `index` axes and scalars has the same tiles in the same order.

    `index` binds, for each output loop from the outside in, an axis (`tiles`) or an i32 (`each`);
    `dims` names their dimensions. `scheduler` is one of `launch_grid`. The last two axes are
    rasterized: adjacent tiles run along `raster` (the last axis, if ""), and `swizzle` tiles of the
    other axis form a group. `cluster` gives the CTAs of a cluster along each index, the last
    one's ranks first; together they process that number of adjacent tiles. With `num_pingpong`
    compute partitions, this one does every `num_pingpong`-th tile of its CTA, beginning with
    `pingpong_index`, and skips the stages of the others in `skip`; order barriers make their
    mainloops alternate. `within` is that of `for_tiles`, for each index. Of the i32 named
    `turn` a work item has `turns`, one after the other.

    With `bounds` the axis `ragged` begins and ends, in each group, where this region yields; it
    may yield the first element, too, where that is not the tile's beginning. The first `groups` of
    `index`, which it has as arguments, are those of the group, one after the other. `clipped` and
    `shifted` are those of `for_tiles`.

    "split_k" and "stream_k" cut tiles along `contraction`, one (dimension, tile); `splits` is the
    number of splits. Then `piece` binds i32: the tile's workspace entry (a number that its splits
    have in common), the first element of the contraction and the one past the last; and with
    `together`, where all splits of a tile run at the same time, the split's number and their count.
    With `sharing` > 1, `sharing` CTAs of a cluster with consecutive ranks share a tile's
    contraction instead; `piece` binds the entry, the first element and the number of elements (the
    same for all, so that the last may exceed the end), and the number of this CTA among them.
    """

    index: tuple[Value, ...] = binds()
    dims: tuple[str, ...]
    scheduler: str = "persistent"
    swizzle: int = 1
    raster: str = ""
    cluster: tuple[int, ...] = ()
    within: tuple[int, ...] = ()
    turn: str = ""
    turns: int = 1
    pingpong_index: int = 0
    num_pingpong: int = 1
    contraction: tuple[tuple[str, int], ...] = ()
    splits: int = 0
    together: bool = False
    sharing: int = 1
    piece: tuple[Value, ...] = binds(())
    groups: int = 0
    ragged: str = ""
    clipped: bool = False
    shifted: bool = False
    body: Region = ()
    skip: Region = ()
    bounds: Region = ()

    def step(self, index: Value) -> int:
        """Elements of a dimension per work item."""
        own = self.turns if index.name == self.turn else 1
        return index.type.size if isinstance(index.type, Axis) else own


@op_class(PARTITIONED, was="finish_tile")
class SplitkFixup(Op):
    """Split-K fixup. `sums` are the accumulators of a split, elements `begin` to `end` of
    `contraction`. Add to them those of the elements before `begin`; if `end` is the contraction's,
    run `body` with the total as `args`, else store it in the workspace entry `slot` for the next
    split.

    `reduction`: "serial": each split adds after the one before it. "parallel": all splits store
    their accumulators, and after that each runs `body` for a part of the tile's columns. `part`
    is then the number of the split among `parts`; the first does where `sums` have only columns,
    combined by `fns` ("add", "max" or "min"; all are added without `fns`). "cluster" is the same
    for the `sharing` CTAs of a cluster that share the contraction and send their accumulators.
    """

    sums: tuple[Value, ...]
    fns: tuple[str, ...] = ()
    slot: Value
    begin: Value
    end: Value
    contraction: str
    reduction: str = "serial"
    part: Value | None = None
    parts: Value | None = None
    sharing: int = 1
    args: tuple[Value, ...] = binds(())
    body: Region = ()


@op_class(PARTITIONED, was="add_in_cluster")
class ClusterReduce(TakesStage, ManyResults):
    """Reduce accumulators in a cluster. `sums` are those of this CTA, the `part`-th (i32) of
    `sharing` with consecutive ranks. The tile's columns are split into `sharing` slices; each CTA
    sends the others theirs, through the next stage of `ring`, and returns the total of its slice:
    its part first, then those of the CTAs before it, one after another. It releases the received
    stages when its warpgroups have synchronized at the named barrier `barrier`; after the uses of
    the totals it waits for the release of what it sent. `state` is the stage's pipeline state, from
    `assign_states` on; `shared`, `full` and `empty` are those of the pipeline, once allocated.
    """

    sums: tuple[Value, ...]
    part: Value
    sharing: int
    barrier: int
    ring: Value | None = None
    state: Value | None = None
    shared: Value | None = None
    full: Value | None = None
    empty: Value | None = None


@op_class(("tile", "partitioned"), was="exchange_rows")
class ClusterAllgather(ManyResults):
    """Gather `x` of all `ctas` CTAs of a cluster, results of their tiles along `axis`: those of the
    first value of each CTA, in the order of the ranks, then of the next value. Elements have 32
    bits. The CTAs wait for each other, once.
    """

    x: tuple[Value, ...]
    axis: str
    ctas: int

    def of(self, n: int) -> tuple[Value, ...]:
        """All of the n-th tile."""
        return self.result[n * self.ctas : (n + 1) * self.ctas]


@op_class(PARTITIONED)
class RenameAxes(Unary):
    """The same values, under the names of other axes of the same sizes and roles."""


@op_class(PARTITIONED)
class FoldRows(OneResult):
    """Reduce the rows of `x` along `axis` by `fn` ("add", "max" or "min"), those that a thread has:
    row r of the result, which has the rows of a fragment, gets row r of every fragment.
    Elements outside of what its loop walks take no part.
    """

    fn: str
    x: Value
    axis: str


@op_class(PARTITIONED, pure=True)
class AxisAt(OneResult):
    """The axis whose current tile begins at the i32 `start`; lowered from loops over tiles. With
    `first` or `stop` (i32) it has no elements before, or from there on, where the tensor may have
    some. `shifted`: `start` need not be a multiple of the tile's size. `inside`: the tile ends with
    its last element, neither beyond `stop` nor beyond the dimension.
    """

    start: Value
    first: Value | None = None
    stop: Value | None = None
    shifted: bool = False
    inside: bool = False

    @property
    def is_clipped(self) -> bool:
        """Whether the tile may reach elements of the dimension outside of its range."""
        return self.first is not None or self.stop is not None


@op_class(PARTITIONED)
class CommitProducts(Op):
    """The contractions since the last commit, or the last wait, may be in
    flight together: threads wait for them where one of their results is read, or a stage that they
    read is released.
    """


@op_class(PARTITIONED)
class Materialize(Op):
    """Compute the tiles `values` here, not at their first use; with
    `but_last` all but their last block of 64 rows, whose MMA is issued. With `in_order`
    threads load for them from global memory no earlier.
    """

    values: tuple[Value, ...]
    but_last: bool = False
    in_order: bool = False


def by_warpgroup(ops: Sequence[Partition]) -> list[list[Partition]]:
    """Partitions, each with those that are run by further warps of its warpgroup."""
    found: list[list[Partition]] = []
    for op in ops:
        if op.num_warpgroups or not found:
            found.append([op])
        else:
            found[-1].append(op)
    return found
