"""SCHEDULED: barriers of whole warps, warpgroups, CTAs and clusters, and proxy fences."""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir.attribute_checks import between
from wsdsl.ir.effects import Arrive, Effects, Fence, Wait
from wsdsl.ir.op import SCHEDULED, Makers, Op, Value, op_class


@op_class(SCHEDULED, "cta", ptx="bar.sync 0")
class SyncCta(Op):
    """bar.sync 0: synchronize all threads of the CTA."""

    def effects(self, made: Makers) -> Effects:
        yield Arrive("cta")
        yield Wait("cta")


@op_class(SCHEDULED, "cta", of_cluster=True)
class SyncCluster(Op):
    """barrier.cluster: synchronize all threads of the cluster, which see each other's writes;
    with `relaxed` only the barriers that a `fence_mbarrier_init` followed, which costs no fence.
    """

    relaxed: bool = False

    def effects(self, made: Makers) -> Effects:
        yield Arrive("cluster")
        yield Wait("cluster")


@op_class(())
class NamedBarrier(Op):
    """Base of ops that are about one of several named barriers."""

    barrier: int
    num_warpgroups: int
    item: Value | None = None
    num: int = 1

    @property
    def numbers(self) -> range:
        """The barriers that it may be about."""
        return range(self.barrier, self.barrier + self.num)

    def faults(self, made: Makers) -> Iterator[str]:
        if self.numbers[-1] > 15:
            yield f"barriers {self.barrier} to {self.numbers[-1]} exceed the last barrier, 15"
        if (self.num > 1) != (self.item is not None):
            yield "several barriers need an `item`, and one barrier has none"


@op_class(SCHEDULED, "warpgroup", ranges=dict(num=between(1, 15)))
class NamedBarrierSync(NamedBarrier):
    """bar.sync: all threads of the warpgroup wait at the CTA's named barrier `barrier` (1 to 15),
    until `num_warpgroups` whole warpgroups have arrived, by this op or by `named_barrier_arrive`.
    They then see the earlier accesses of those. With `item` (i32, 0 to `num` - 1) it is the barrier
    `barrier` + `item`, and may be another one for each warpgroup.
    """

    def effects(self, made: Makers) -> Effects:
        yield Arrive("named barrier", item=self.item, numbers=self.numbers)
        yield Wait("named barrier", item=self.item, numbers=self.numbers)


@op_class(SCHEDULED, "warpgroup", ranges=dict(num=between(1, 15)))
class NamedBarrierArrive(NamedBarrier):
    """bar.arrive: like `named_barrier_sync`, but go on without waiting for the others."""

    def effects(self, made: Makers) -> Effects:
        yield Arrive("named barrier", item=self.item, numbers=self.numbers)


@op_class(SCHEDULED, "warps", ptx="bar.warp.sync")
class SyncWarp(Op):
    """bar.warp.sync: synchronize the threads of each warp, which see each other's SMEM accesses."""

    def effects(self, made: Makers) -> Effects:
        yield Arrive("warp")
        yield Wait("warp")


@op_class(SCHEDULED, "any")
class FenceAsyncProxy(Op):
    """fence.proxy.async: the running threads' SMEM writes become visible to TMA and wgmma, for
    threads that synchronize with them afterwards. `everywhere`: so do their writes to global
    memory, and TMA may overwrite elements that they read there.
    """

    everywhere: bool = False

    def effects(self, made: Makers) -> Effects:
        yield Fence("smem")
        if self.everywhere:
            yield Fence("gmem")
