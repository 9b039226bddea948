"""Which threads run an op together: one table, that spec, simulator and prover read.

An `elect` runs its body in one thread, so only what one thread can do stands in it. A fragment is
spread over all 128 threads of a warpgroup: whatever makes or takes one needs them all, however
simple it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from wsdsl.ir import barrier_ops as b
from wsdsl.ir import counter_ops as k
from wsdsl.ir import fragment_ops as f
from wsdsl.ir import memory_ops as m
from wsdsl.ir import prefetch_ops as p
from wsdsl.ir import tensor_ops as tm
from wsdsl.ir import tile_ops as t
from wsdsl.ir import transpose_ops as tr
from wsdsl.ir.op import Kernel, Op, Region, bound, op_name, operands, regions, results_of
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.types import Accumulator, Fragment

Threads = Literal["kernel", "one", "any", "warps", "warpgroup", "cta"]
"""Who runs an op:

- "kernel": it is said once of the kernel, outside of any region;
- "one": a single thread, in an `elect`;
- "any": each thread for itself, be it one or all;
- "warps": all threads of a warp, each warp for itself;
- "warpgroup": all threads of a warpgroup, outside of which it means nothing;
- "cta": all threads of the CTA, or of the cluster.
"""

THREADS: dict[type[Op], Threads] = {
    b.LaunchGrid: "kernel",
    b.LaunchNarrowing: "kernel",
    b.AllocateBarriers: "kernel",
    m.AllocateShared: "kernel",
    m.AllocateGlobal: "kernel",
    m.MakeTensorMap: "kernel",
    tm.TensorColumns: "kernel",
    Partition: "kernel",
    # One thread. Those of a warp would each do it.
    b.InitializeBarriers: "one",
    b.FenceBarrierInit: "one",
    b.ArriveExpectTx: "one",
    b.ClaimCluster: "one",
    p.PrefetchTensorMap: "one",
    p.PrefetchBox: "one",
    m.TmaLoad: "one",
    tm.TensorProduct: "one",
    tm.TensorCommit: "one",
    tm.TensorCopy: "one",
    # Each thread for itself.
    b.ForRange: "any",
    t.If: "any",
    t.Yield: "any",
    t.Map: "any",
    t.Cast: "any",
    t.Bitcast: "any",
    t.Constant: "any",
    t.Full: "any",
    t.DimSize: "any",
    b.CtaIndex: "any",
    b.NumCtas: "any",
    b.ClusterIndex: "any",
    b.NumClusters: "any",
    b.CtaRank: "any",
    b.ClaimedCluster: "any",
    b.WarpgroupIndex: "any",
    b.InitialState: "any",
    b.Advance: "any",
    b.WaitBarrier: "any",
    b.ArriveBarrier: "any",  # With each_warp or each_thread: see `threads_of`.
    b.ArriveFlag: "any",
    b.WaitFlag: "any",
    b.FenceAsyncProxy: "any",
    tm.TensorFence: "any",
    b.WaitPredecessor: "any",
    b.LaunchDependents: "any",
    m.LoadGlobal: "any",
    m.StoreGlobal: "any",
    f.MatrixOperand: "any",
    # An instruction of a whole warp, or one that elects among its threads.
    b.Elect: "warps",
    b.SyncWarp: "warps",
    m.LoadShared: "warps",
    # Of a warpgroup: each warp has its part of a fragment, or of a slot.
    b.SetMaxRegisters: "warpgroup",
    b.NamedBarrierSync: "warpgroup",
    b.NamedBarrierArrive: "warpgroup",
    m.ThreadLoad: "warpgroup",
    m.ClearPanels: "warpgroup",
    p.PrefetchTile: "warpgroup",
    m.StoreShared: "warpgroup",
    m.LoadPanels: "warpgroup",
    m.StorePartials: "warpgroup",
    m.ReducePartials: "warpgroup",
    k.ClearCounters: "warpgroup",
    k.AddCounters: "warpgroup",
    k.StoreCounters: "warpgroup",
    tr.StoreTransposed: "warpgroup",
    tr.LoadTransposed: "warpgroup",
    m.SendFragment: "warpgroup",
    m.ReceiveFragment: "warpgroup",
    m.TmaStore: "warpgroup",
    m.ThreadStore: "warpgroup",
    m.TmaStoreCommit: "warpgroup",
    m.TmaStoreWait: "warpgroup",
    f.EmptyAccumulator: "warpgroup",
    f.AsAccumulator: "warpgroup",
    f.WgmmaFence: "warpgroup",
    f.Wgmma: "warpgroup",
    f.WgmmaCommit: "warpgroup",
    f.WgmmaWait: "warpgroup",
    f.ZeroUnless: "warpgroup",
    f.Slice: "warpgroup",
    f.Join: "warpgroup",
    f.ConvertLayout: "warpgroup",
    f.ReduceColumns: "warpgroup",
    f.ScanColumns: "warpgroup",
    f.Iota: "warpgroup",
    tm.TensorLoad: "warpgroup",
    tm.TensorStore: "warpgroup",
    tm.StoreScales: "warpgroup",
    tm.TensorStoreWait: "warpgroup",
    tm.TensorWait: "warpgroup",
    b.SyncCta: "cta",
    b.SyncCluster: "cta",
    tm.AllocateTensorMemory: "cta",
    tm.FreeTensorMemory: "cta",
}
"""Every op of SCHEDULED."""

WHOLE: tuple[Threads, ...] = ("warps", "warpgroup", "cta")
"""What a single thread can not do."""


def threads_of(op: Op) -> Threads:
    told = THREADS[type(op)]
    if told != "any":
        return told
    if isinstance(op, b.ArriveBarrier) and (op.each_warp or op.each_thread):
        return "warpgroup"
    values = (*operands(op), *results_of(op), *bound(op))
    spread = any(isinstance(v.type, (Fragment, Accumulator)) for v in values)
    return "warpgroup" if spread else "any"


def misplaced(op: Op, elected: bool) -> tuple[str, str]:
    """Why an op may not be run by one elected thread, or by all; and a hint. "" if it may."""
    threads = threads_of(op)
    if threads == "one" and not elected:
        return "must be run by one thread", "put it in an `elect`"
    if elected and isinstance(op, b.Elect):
        return "one thread is elected already", "take out the inner `elect`, and keep its body"
    if elected and threads in WHOLE:
        return "needs all threads of its warps", "take it out of the `elect`"
    return "", ""


def ops_have_their_threads(kernel: Kernel) -> Iterator[tuple[Op | None, str]]:
    parted = any(isinstance(op, Partition) for op in kernel.body)

    def visit(region: Region, elected: bool, shared: bool, depth: int) -> Iterator[tuple[Op, str]]:
        """`shared`: threads of several partitions run it."""
        for op in region:
            # Whether it has fragments is asked where not all may have some.
            threads = threads_of(op) if elected or shared else THREADS[type(op)]
            told, hint = misplaced(op, elected) if elected or threads == "one" else ("", "")
            if told:
                yield op, f"{op_name(type(op))}: {told}: {hint}"
            elif threads == "kernel" and depth:
                yield op, f"{op_name(type(op))} stands outside of any region"
            elif threads == "warpgroup" and shared:
                told = "is for one partition's warpgroups: put it in a partition"
                yield op, f"{op_name(type(op))} {told}"
            for inner in regions(op):
                inside = shared and not isinstance(op, Partition)
                yield from visit(inner, elected or isinstance(op, b.Elect), inside, depth + 1)

    yield from visit(kernel.body, False, parted, 0)
