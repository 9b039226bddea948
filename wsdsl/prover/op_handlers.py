"""How each SCHEDULED op runs on the abstract machine. What is missing here is refused by name."""

from __future__ import annotations

from wsdsl.ir import barrier_ops as b
from wsdsl.ir import counter_ops as k
from wsdsl.ir import fragment_ops as f
from wsdsl.ir import memory_ops as m
from wsdsl.ir import tensor_ops as tm
from wsdsl.ir import tile_ops as t
from wsdsl.ir.op import Op, by_op
from wsdsl.prover import (
    access,
    cluster_exchange,
    cta_barriers,
    products,
    scalars,
    shared_loads,
    shared_stores,
    sync,
    tensor_memory,
)
from wsdsl.prover.program import Run

HANDLERS: dict[type[Op], Run] = {
    t.Map: scalars.map_scalars,
    b.CtaIndex: scalars.place(lambda model, a: model.cta_index(a.cta)),
    b.NumCtas: scalars.place(lambda model, _: model.count("ctas")),
    b.ClusterIndex: scalars.place(lambda model, a: model.cluster_index(a.cta)),
    b.NumClusters: scalars.place(lambda model, _: model.count("clusters")),
    b.CtaRank: scalars.place(lambda model, a: model.cta_rank(a.cta)),
    b.WarpgroupIndex: scalars.place(lambda _, a: a.rank),
    **dict.fromkeys((t.Cast, t.Bitcast, t.Full, f.Iota), scalars.opaque),
    **dict.fromkeys((f.ReduceColumns, f.MmaSync, f.ScanColumns), scalars.fresh),
    **dict.fromkeys((k.ClearCounters, k.StoreCounters), shared_stores.own_counters),
    **dict.fromkeys((b.AllocateBarriers, m.AllocateShared, m.AllocateGlobal), scalars.nothing),
    **dict.fromkeys((m.MakeTensorMap, tm.AllocateTensorMemory, tm.TensorColumns), scalars.nothing),
    **dict.fromkeys((b.WaitPredecessor, b.LaunchDependents), scalars.nothing),
    **by_op(access, products, scalars, shared_loads, shared_stores, tensor_memory),
    **by_op(cluster_exchange, cta_barriers, sync),
}
