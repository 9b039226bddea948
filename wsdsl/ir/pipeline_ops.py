"""PARTITIONED: who does it. Partitions, the work they walk alike, circular buffers between them,
whose slots have ops of their own (`slot_ops.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wsdsl.ir.op import Kernel, Level, ManyResults, OneResult, Op, Region, Value, binds, op_class
from wsdsl.ir.types import Axis, Tile

PARTITIONED: tuple[Level, ...] = ("partitioned",)


@op_class(PARTITIONED)
class CircularBuffer(OneResult):
    """`depth` slots in SMEM, or with `space` "TMEM" in tensor memory. A slot holds the tiles of one
    of `layouts`: a slot is as large as the largest layout, so that loops with different operands
    share the stream. `consumers` warpgroups read a slot and give it back. Where CTAs of a cluster
    copy to each other's slots, `multicast` has the groups of ranks that share a tile (see
    `load_to_slot`), and each consumer gives a slot back to all who copy to it. Where two partitions
    load, both take every slot, and fill the fields that are theirs. With `parts` a tile passes
    through in parts along its columns, of as many columns as they say, each in a slot of its own:
    so tiles that nobody multiplies, like a residual, are brought while the one before is read. With
    `senders` its slots are filled by so many other CTAs of the cluster, which send their sums (see
    `add_in_cluster`). With `block` tiles are scales in tensor memory, alike in so many elements of
    their last axis.
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
    "compute") with `registers` registers a thread. Partitions run at the same time; warpgroups, of
    four warps, are numbered in the order of the partitions. Warpgroup g computes the g-th part of a
    tile's rows, or with `share` of its columns. A partition of one warp is the next warp of the
    warpgroup before it, and has that one's registers: outside of `elect` it may have nothing but
    scalars.

    The rest is for lowering, and gone from the level SCHEDULED. A warpgroup stores its results
    through `staging` buffers. With `in_order` what threads load from global memory comes when it is
    needed, else as early as registers allow; with `late_loads` what multiplies a product is
    loaded behind its issue, else in front. With `copies_ahead` threads that copy operands ask L2
    for later ones, and one that loads by TMA asks it for what it loads in `asks_early` iterations
    before the kernel in front is over. With `order_barriers` its warpgroups follow one another in
    each iteration of a loop with products of products.
    """

    role: str
    num_warps: int = 4
    share: str = "rows"
    registers: int = 0
    staging: int = 1
    in_order: bool = False
    late_loads: bool = False
    copies_ahead: bool = False
    asks_early: int = 0
    order_barriers: bool = False
    body: Region = ()

    @property
    def num_warpgroups(self) -> int:
        """Whole ones of its own."""
        return self.num_warps // 4

    @property
    def num_agents(self) -> int:
        """How many run the body, each by itself: warpgroups, or one thread."""
        return max(1, self.num_warpgroups)


def with_partitions(
    kernel: Kernel, change: Callable[[Partition], Partition], role: str = ""
) -> Kernel:
    """The kernel with each partition changed, or each of the role; the same one if none is."""

    def changed(op: Op) -> Op:
        return change(op) if isinstance(op, Partition) and role in ("", op.role) else op

    return kernel.with_body(tuple(map(changed, kernel.body)))


@op_class(PARTITIONED)
class ForWork(Op):
    """Walk the output tiles that the tile scheduler gives this CTA; every partition that walks the
    same `index` axes and scalars sees the same tiles in the same order.

    `index` binds, for each output loop from the outside in, an axis (`tiles`) or an i32 (`each`);
    `dims` names their dimensions. `scheduler` is one of `launch_grid`. The last two axes are
    rasterised: neighbours run along `raster` (the last axis, if ""), and `swizzle` tiles of the
    other axis are walked together. `cluster` gives the CTAs of a cluster along each index, the last
    one's ranks first; together they take that many neighbouring tiles. With `num_pingpong`
    compute partitions, this one does every `num_pingpong`-th tile of its CTA, beginning with
    `pingpong_index`, and passes over the slots of the others in `skip`; order barriers make their
    mainloops follow one another. `within` is that of `for_tiles`, for each index. Of the i32 named
    `turn` a work item has `turns`, one after the other.

    "split_k" and "stream_k" cut tiles along `contraction`, one (dimension, tile); `splits` are the
    pieces of "split_k". Then `piece` binds i32: the tile's slot (a number that the pieces of a tile
    have in common), between which elements of the contraction to sum; and with `together`, where
    all pieces of a tile run at the same time, the piece's number and that of the tile's pieces.
    With `sharing` > 1 so many CTAs of a cluster, whose ranks follow each other, share a tile's
    contraction instead; `piece` binds the slot, the first element and the number of elements (the
    same for all, so that the last may reach over the end), and this CTA's number among so many.
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
    body: Region = ()
    skip: Region = ()

    def step(self, index: Value) -> int:
        """Elements of a dimension that a work item takes."""
        own = self.turns if index.name == self.turn else 1
        return index.type.size if isinstance(index.type, Axis) else own


@op_class(PARTITIONED)
class FinishTile(Op):
    """`sums` are those of a piece of a tile, of the elements `begin` to `end` of `contraction`.
    Add to them what was summed in front of `begin`; if `end` is the contraction's, run `body` with
    the whole as `args`, else leave it in the tile's `slot` for the piece that follows.

    `reduction`: "serial": each piece adds after the one in front of it. "parallel": all pieces
    leave their sums, and when all have, each runs `body` for a part of the tile's columns. `part`
    is then the piece's number among `parts`; the first does where `sums` have columns alone, each
    then joined by its one of `fns` ("add", "max" or "min"; all are added if there are none).
    "cluster" is the same for the CTAs of a cluster that share the contraction, `sharing` of them:
    they send each other their sums.
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


@op_class(PARTITIONED)
class AddInCluster(ManyResults):
    """`sums` are what this CTA, the `part`-th (i32) of `sharing` with consecutive ranks, has summed
    of a tile's contraction. The tile's columns are cut into as many slices; each CTA sends the
    others theirs, through the next slot of `ring`, and gets the whole sums of its own: its own part
    first, then those of the CTAs in front of it, one after another. What others sent it gives back
    when its warpgroups have met at the named barrier `barrier`; behind what is done with the sums
    it waits until they have given back what it sent. `state` is the slot's pipeline state, from
    `assign_states` on; `shared`, `full` and `empty` are the ring's, once it has its place.
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


@op_class(("tile", "partitioned"))
class ExchangeRows(ManyResults):
    """What each of so many CTAs of a cluster, all of it, has of `x`, what it has found out of its
    tile along `axis`: of the first of them that of each CTA, in the order of their ranks, then of
    the next. Elements have 32 bits. The CTAs wait for each other, once.
    """

    x: tuple[Value, ...]
    axis: str
    ctas: int

    def of(self, n: int) -> tuple[Value, ...]:
        """All of the n-th tile."""
        return self.result[n * self.ctas : (n + 1) * self.ctas]


@op_class(PARTITIONED)
class RenameAxes(OneResult):
    """The same values, under the names of other axes of the same sizes and roles."""

    x: Value


@op_class(PARTITIONED)
class FoldRows(OneResult):
    """Reduce the rows of `x` along `axis` by `fn` ("add", "max" or "min"), those that a thread has:
    row r of the result, which has as many as a piece, gets every row of its place in a piece.
    Elements outside of what its loop walks take no part.
    """

    fn: str
    x: Value
    axis: str


@op_class(PARTITIONED)
class AxisAt(OneResult):
    """The axis whose current tile begins at the i32 `start`; what loops over tiles become. With
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
        """Whether the tile may reach elements of the dimension that are none of its own."""
        return self.first is not None or self.stop is not None


@op_class(PARTITIONED)
class CommitProducts(Op):
    """The products (`contract`) since the last one, or the last that was waited for, may be in
    flight together: they are waited for where one of their results is read, or a slot is given
    back that they read.
    """


@op_class(PARTITIONED)
class Materialize(Op):
    """The tiles `values` are computed here, not where something first asks for them; with
    `but_last` all but their last block of 64 rows, whose product is started. With `in_order` what
    threads load for them from global memory comes no earlier.
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
