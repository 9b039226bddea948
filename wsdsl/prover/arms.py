"""How each SCHEDULED op runs on the abstract machine. What is missing here is refused by name."""

from __future__ import annotations

from wsdsl.ir import barrier_ops as b
from wsdsl.ir import fragment_ops as f
from wsdsl.ir import memory_ops as m
from wsdsl.ir import tile_ops as t
from wsdsl.ir.op import Op
from wsdsl.prover import (
    access,
    flags,
    global_memory,
    in_cluster,
    meetings,
    products,
    scalars,
    shared_loads,
    sync,
)
from wsdsl.prover.program import Run

ARMS: dict[type[Op], Run] = {
    t.Constant: scalars.constant,
    t.DimSize: scalars.dim_size,
    t.Map: scalars.map_scalars,
    t.Cast: scalars.opaque,
    t.Bitcast: scalars.opaque,
    t.Full: scalars.opaque,
    m.LoadGlobal: global_memory.load_global,
    m.StoreGlobal: global_memory.store_global,
    f.ReduceColumns: scalars.fresh,
    f.Iota: scalars.opaque,
    b.CtaIndex: scalars.cta_index,
    b.NumCtas: scalars.num_ctas,
    b.ClusterIndex: scalars.cluster_index,
    b.NumClusters: scalars.num_clusters,
    b.CtaRank: scalars.cta_rank,
    b.WarpgroupIndex: scalars.warpgroup_index,
    b.InitialState: scalars.initial_state,
    b.Advance: scalars.advance,
    b.AllocateBarriers: scalars.nothing,
    m.AllocateShared: scalars.nothing,
    m.AllocateGlobal: scalars.nothing,
    m.MakeTensorMap: scalars.nothing,
    b.InitializeBarriers: sync.initialize_barriers,
    b.FenceBarrierInit: sync.fence_barrier_init,
    b.WaitPredecessor: scalars.nothing,
    b.LaunchDependents: scalars.nothing,
    b.SyncCta: meetings.sync_cta,
    b.SyncCluster: meetings.sync_cluster,
    b.NamedBarrierSync: meetings.named_barrier_sync,
    b.NamedBarrierArrive: meetings.named_barrier_arrive,
    b.SyncWarp: sync.sync_warp,
    b.WaitBarrier: sync.wait_barrier,
    b.ArriveBarrier: sync.arrive_barrier,
    b.ArriveExpectTx: sync.arrive_expect_tx,
    b.SetMaxRegisters: sync.set_max_registers,
    b.ArriveFlag: flags.arrive_flag,
    b.WaitFlag: flags.wait_flag,
    b.FenceAsyncProxy: access.fence_async_proxy,
    m.TmaLoad: access.tma_load,
    m.ThreadLoad: access.thread_load,
    m.LoadPanels: shared_loads.load_panels,
    m.SendFragment: in_cluster.send_fragment,
    m.ReceiveFragment: in_cluster.receive_fragment,
    m.StoreShared: access.store_shared,
    m.LoadShared: shared_loads.load_shared,
    m.TmaStore: access.tma_store,
    m.TmaStoreCommit: access.tma_store_commit,
    m.TmaStoreWait: access.tma_store_wait,
    f.MatrixOperand: products.matrix_operand,
    f.EmptyAccumulator: products.empty_accumulator,
    f.AsAccumulator: products.as_accumulator,
    f.WgmmaFence: products.wgmma_fence,
    f.Wgmma: products.wgmma,
    f.WgmmaCommit: products.wgmma_commit,
    f.WgmmaWait: products.wgmma_wait,
}
