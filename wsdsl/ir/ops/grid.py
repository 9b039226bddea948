"""SCHEDULED: the launch, indices of CTAs and warpgroups, and registers per thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from wsdsl.ir.analysis.tile_widths import narrower_side
from wsdsl.ir.attribute_checks import between
from wsdsl.ir.effects import Arrive, Effects, Wait
from wsdsl.ir.op import SCHEDULED, Kernel, Makers, OneResult, Op, Value, op_class, with_fields
from wsdsl.ir.tile_scheduler import tile_scheduler


@op_class(SCHEDULED, "kernel", ranges=dict(narrowed=between(0, 8)))
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
    `narrower` is subtracted from the size of number `narrowed`. With `ragged` data say
    how many items there are; this number is for the size of the grid alone.
    """

    tiles: tuple[tuple[str, int], ...]
    scheduler: str = "persistent"
    cluster: int = 1
    contraction: tuple[tuple[str, int], ...] = ()
    splits: int = 0
    together: bool = False
    sharing: int = 1
    overlapping: bool = False
    ragged: bool = False
    ctas_per_sm: int = 1
    narrower: Value | None = None
    narrowed: int = 0

    @property
    def worker(self) -> tuple[type[SpecialRegister], type[SpecialRegister]]:
        """The index of the CTA, or the cluster, that processes an item, and the number of these."""
        return (ClusterIndex, NumClusters) if self.cluster > 1 else (CtaIndex, NumCtas)

    def faults(self, made: Makers) -> Iterator[str]:
        if self.cluster % self.sharing:
            yield f"sharing={self.sharing} does not divide a cluster of {self.cluster}"
        elif self.scheduler != "split_k" and (self.splits or self.together):
            yield 'splits and together need scheduler="split_k"'
        if tile_scheduler(self.scheduler, self.splits).splits_tiles:
            if len(self.contraction) != 1 or self.contraction[0][1] < 1:
                yield f'"{self.scheduler}" splits one dimension: contraction=(("K", 64),)'
            if self.scheduler == "split_k" and self.splits < 1:
                yield "splits=0: split_k needs the number of splits"
        if self.narrower is None and self.narrowed != 0:
            yield f"narrowed={self.narrowed!r} needs `narrower`, which is missing"
        elif self.narrower and self.narrowed >= len(self.tiles):
            yield f"narrowed={self.narrowed} is not one of {len(self.tiles)} sizes"

    def at_width(self, columns: int) -> Op:
        tiles = narrower_side(self.tiles, self.narrowed, columns)
        return with_fields(self, tiles=tiles, narrower=None, narrowed=0)


def grid_of(kernel: Kernel) -> LaunchGrid | None:
    return next(iter(kernel.of(LaunchGrid)), None)


@op_class(("partitioned", "scheduled"), "kernel", ranges=dict(widths=between(2, 8)))
class LaunchNarrowing(OneResult):
    """By how many columns of wgmma's N the tiles of this launch are narrower than the kernel's
    widest: a multiple of 8, below 8 * `widths`; i32. An op that takes it as `narrower` states the
    extents of the widest tiles, from which it is subtracted.
    """

    widths: int


@op_class(())
class SpecialRegister(OneResult):
    """Base of indices `within` the grid, a cluster or a partition, and of extents of the grid."""

    within: ClassVar[Literal["grid", "cluster", "partition"] | None] = "grid"


@op_class(SCHEDULED, "any", pure=True)
class CtaIndex(SpecialRegister):
    """The index of this CTA in the grid; i32."""


@op_class(SCHEDULED, "any", pure=True)
class NumCtas(SpecialRegister):
    """The number of CTAs in the grid; i32."""

    within = None


@op_class(SCHEDULED, "any", pure=True, of_cluster=True)
class ClusterIndex(SpecialRegister):
    """The index of this CTA's cluster in the grid: `cta_index` by the cluster's size; i32."""


@op_class(SCHEDULED, "any", pure=True, of_cluster=True)
class NumClusters(SpecialRegister):
    """The number of clusters in the grid; i32."""

    within = None


@op_class(SCHEDULED, "any", pure=True, of_cluster=True)
class CtaRank(SpecialRegister):
    """The index of this CTA in its cluster; i32."""

    within = "cluster"


@op_class(SCHEDULED, "any", pure=True)
class WarpgroupIndex(SpecialRegister):
    """The index of the executing warpgroup in its partition; i32, warp-uniform."""

    within = "partition"


@op_class(SCHEDULED, "warpgroup", was="set_max_registers", by_lone_warps=True)
class Setmaxnreg(Op):
    """setmaxnreg: give registers back (`increase=False`) or take them, to `count` a thread."""

    count: int
    increase: bool

    def effects(self, made: Makers) -> Effects:
        yield Wait("registers") if self.increase else Arrive("registers")


def entry_registers(kernel: Kernel, warpgroups: int) -> int:
    """Return the registers per thread at entry. ptxas gives a kernel no more than its largest
    setmaxnreg takes.
    """
    entry = kernel.target.entry_registers(warpgroups)
    return min(entry, max((op.count for op in kernel.of(Setmaxnreg)), default=entry))
