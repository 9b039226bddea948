"""SCHEDULED: control, pipeline state and everything that makes one thread wait for another."""

from __future__ import annotations

from wsdsl.ir.op import Level, ManyResults, OneResult, Op, Region, Value, binds, op_class

SCHEDULED: tuple[Level, ...] = ("scheduled",)


@op_class(SCHEDULED, "kernel")
class LaunchGrid(Op):
    """The number of work items: the product, over (dimension, size), of their quotients, rounded
    up. A cluster of `cluster` CTAs with consecutive indices processes each. "grid" launches one
    cluster per item, "persistent" at most as many as run at the same time. "dynamic" launches one
    per item, too, and running clusters claim clusters that have not started (CLC). "split_k" and
    "stream_k" split items along `contraction`, one (dimension, size), and launch no more than run
    at the same time (`wsdsl/ir/tile_scheduler.py`); `splits` is the number of splits; with
    `together` all of them must run at the same time. `sharing` CTAs of a cluster share the
    accumulators of an item. If items are `overlapping`, several store the same elements, each with
    the same bits; no other op writes or reads these. Registers are left for `ctas_per_sm` CTAs.
    `narrower` is subtracted from the size of number `narrowed`.
    """

    tiles: tuple[tuple[str, int], ...]
    scheduler: str = "persistent"
    cluster: int = 1
    contraction: tuple[tuple[str, int], ...] = ()
    splits: int = 0
    together: bool = False
    sharing: int = 1
    overlapping: bool = False
    ctas_per_sm: int = 1
    narrower: Value | None = None
    narrowed: int = 0


@op_class(("partitioned", "scheduled"), "kernel")
class LaunchNarrowing(OneResult):
    """By how many columns of wgmma's N the tiles of this launch are narrower than the kernel's
    widest: a multiple of 8, below 8 * `widths`; i32. An op that takes it as `narrower` states the
    extents of the widest tiles, from which it is subtracted.
    """

    widths: int


@op_class(SCHEDULED, "any")
class ForRange(ManyResults):
    """`for index in range(start, stop, step)` on i32 (step > 0); carries like `for_tiles`. With
    `claimed` each index but the first is what the iteration before has carried last, an i32 in the
    place of `index + step`: the loop goes on while that is less than `stop`.
    """

    index: Value = binds()
    start: Value
    stop: Value
    step: Value
    claimed: bool = False
    init: tuple[Value, ...] = ()
    args: tuple[Value, ...] = binds(())
    body: Region = ()


@op_class(SCHEDULED, "warps")
class Elect(Op):
    """One thread runs `body`: thread 0 of the CTA, or in a partition an elected thread of the first
    warp of its first warpgroup. The others go on.
    """

    body: Region = ()


@op_class(SCHEDULED, "any", pure=True)
class CtaIndex(OneResult):
    """The index of this CTA in the grid; i32."""


@op_class(SCHEDULED, "any", pure=True)
class NumCtas(OneResult):
    """The number of CTAs in the grid; i32."""


@op_class(SCHEDULED, "any", pure=True)
class ClusterIndex(OneResult):
    """The index of this CTA's cluster in the grid: `cta_index` by the cluster's size; i32."""


@op_class(SCHEDULED, "any", pure=True)
class NumClusters(OneResult):
    """The number of clusters in the grid; i32."""


@op_class(SCHEDULED, "any", pure=True)
class CtaRank(OneResult):
    """The index of this CTA in its cluster; i32."""


@op_class(SCHEDULED, "one")
class ClaimCluster(Op):
    """clusterlaunchcontrol.try_cancel: ask for a cluster of a "dynamic" grid that has not started,
    which then never does. The answer, of 16 bytes, comes to item `state.stage` of `shared` in all
    `ctas` CTAs of the cluster, and counts as bytes on the `barriers` of each, at the state's stage.
    Run by one thread of the cluster, and not again once an answer has no cluster.
    """

    shared: Value
    state: Value
    barriers: Value
    ctas: int = 1


@op_class(SCHEDULED, "any")
class ClaimedCluster(OneResult):
    """The index of the cluster, of `ctas` CTAs, that the response in item `state.stage` of `shared`
    has claimed, or 2**31 - 1 if no cluster is left (clusterlaunchcontrol.query_cancel); i32. Each
    thread reads it, in the generic proxy.
    """

    shared: Value
    state: Value
    ctas: int = 1


@op_class(SCHEDULED, "any", pure=True)
class WarpgroupIndex(OneResult):
    """The index of the executing warpgroup in its partition; i32, warp-uniform."""


@op_class(SCHEDULED, "warpgroup")
class SetMaxRegisters(Op):
    """setmaxnreg: give registers back (`increase=False`) or take them, to `count` a thread."""

    count: int
    increase: bool


@op_class(SCHEDULED, "kernel")
class AllocateBarriers(OneResult):
    """mbarriers at `offset` in SMEM (8 bytes each; -1: not yet placed). A phase completes after
    `arrivals` arrivals and as many bytes as were expected.
    """

    label: str
    arrivals: int
    offset: int = -1


@op_class(SCHEDULED, "one")
class InitializeBarriers(Op):
    """mbarrier.init each of the barriers; run by one thread."""

    barriers: Value


@op_class(SCHEDULED, "one")
class FenceBarrierInit(Op):
    """fence.mbarrier_init: make the initialized barriers visible to the async proxy; the
    initializing thread runs it.
    """


@op_class(SCHEDULED, "cta")
class SyncCta(Op):
    """bar.sync 0: synchronize all threads of the CTA."""


@op_class(SCHEDULED, "any")
class WaitPredecessor(Op):
    """griddepcontrol.wait: a kernel with this op may start before the previous kernel on the
    stream is complete (programmatic dependent launch); here each thread waits for that, and sees
    its writes. No op before this one may access GMEM. It precedes the partitions, or is in each of
    them but those that only read tensors of `Schedule.pdl_independent`.
    """


@op_class(SCHEDULED, "any")
class LaunchDependents(Op):
    """griddepcontrol.launch_dependents: once every CTA of the grid has run it, the next kernel on
    the stream may start, if it waits for this one by itself. It comes after `wait_predecessor`, so
    that at most the previous kernel still runs when a kernel starts.
    """


@op_class(SCHEDULED, "cta")
class SyncCluster(Op):
    """barrier.cluster: synchronize all threads of the cluster, which see each other's writes;
    with `relaxed` only the barriers that a `fence_barrier_init` followed, which costs no fence.
    """

    relaxed: bool = False


@op_class(())
class _NamedBarrier(Op):
    """Base of ops that are about one of several named barriers."""

    barrier: int
    num_warpgroups: int
    item: Value | None = None
    num: int = 1

    @property
    def numbers(self) -> range:
        """The barriers that it may be about."""
        return range(self.barrier, self.barrier + self.num)


@op_class(SCHEDULED, "warpgroup")
class NamedBarrierSync(_NamedBarrier):
    """bar.sync: all threads of the warpgroup wait at the CTA's named barrier `barrier` (1 to 15),
    until `num_warpgroups` whole warpgroups have arrived, by this op or by `named_barrier_arrive`.
    They then see the earlier accesses of those. With `item` (i32, 0 to `num` - 1) it is the barrier
    `barrier` + `item`, and may be another one for each warpgroup.
    """


@op_class(SCHEDULED, "warpgroup")
class NamedBarrierArrive(_NamedBarrier):
    """bar.arrive: like `named_barrier_sync`, but go on without waiting for the others."""


@op_class(SCHEDULED, "warps")
class SyncWarp(Op):
    """bar.warp.sync: synchronize the threads of each warp, which see each other's SMEM accesses."""


@op_class(SCHEDULED, "any", pure=True)
class InitialState(OneResult):
    """The pipeline state at stage 0 that waits for `parity`: a consumer of full barriers starts
    with 0, a producer waits for empty barriers with 1 (its first lap passes at once).
    """

    parity: int


@op_class(SCHEDULED, "any", pure=True)
class Advance(OneResult):
    """The state of the next stage: stage + 1; at `num` stages back to 0, with the other parity."""

    state: Value
    num: int


@op_class(SCHEDULED, "any")
class WaitBarrier(Op):
    """Wait until the phase of the state's parity is complete on the state's stage. Every thread
    that runs it waits and then sees what was written before the arrivals.
    """

    barriers: Value
    state: Value


@op_class(SCHEDULED, "any")
class ArriveBarrier(Op):
    """Arrive on the state's stage: one thread for the executing warpgroup (or the elected thread),
    one of each warp with `each_warp`, all 128 with `each_thread`. With `pred` (a bool scalar) only
    where it holds; with `cta` (i32, a rank in the cluster) on that CTA's barrier rather than on
    one's own.
    """

    barriers: Value
    state: Value
    pred: Value | None = None
    cta: Value | None = None
    each_warp: bool = False
    each_thread: bool = False


@op_class(SCHEDULED, "one")
class ArriveExpectTx(Op):
    """Arrive once, and expect `tx_bytes` more bytes in this phase, or with `narrower` `line_bytes`
    times that fewer; run by one thread. With `cta` (i32, a rank in the cluster) on that CTA's
    barrier.
    """

    barriers: Value
    state: Value
    tx_bytes: int
    narrower: Value | None = None
    line_bytes: int = 0
    cta: Value | None = None


@op_class(SCHEDULED, "any")
class FenceAsyncProxy(Op):
    """fence.proxy.async: the running threads' SMEM writes become visible to TMA and wgmma, for
    threads that synchronize with them afterwards. `everywhere`: so do their writes to global
    memory, and TMA may overwrite elements that they read there.
    """

    everywhere: bool = False


@op_class(SCHEDULED, "any")
class ArriveFlag(Op):
    """red.release.gpu: one thread of the executing warpgroup (or the elected thread) adds `amount`
    (or `by`, an i32) to `tensor` (of i32) at `index`; with `wrap` (an i32) it adds 1, or resets a
    flag of `wrap` to 0. A thread that waits for the flag sees the earlier accesses of this thread,
    and of threads that had synchronized with it; not so without `release` (red.relaxed.gpu), which
    saves the wait until all of these have reached the L2.
    """

    tensor: Value
    index: tuple[Value, ...]
    amount: int = 1
    by: Value | None = None
    wrap: Value | None = None
    release: bool = True


@op_class(SCHEDULED, "any")
class WaitFlag(Op):
    """Wait until `tensor` (of i32) at `index` is at least `count` (i32), polling with
    ld.acquire.gpu. Every thread that runs it waits and then sees what came before the arrivals.
    The CTAs that arrive must be running: those of one cluster do, and all of a "persistent" grid.
    """

    tensor: Value
    index: tuple[Value, ...]
    count: Value
