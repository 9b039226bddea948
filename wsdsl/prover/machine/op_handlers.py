"""How each SCHEDULED op runs on the abstract machine. What is missing here is refused by name."""

from __future__ import annotations

from wsdsl.ir.op import Op, by_op
from wsdsl.ir.ops import fragment as f
from wsdsl.ir.ops import histogram as k
from wsdsl.ir.ops import mbarrier as b
from wsdsl.ir.ops import smem as m
from wsdsl.ir.ops import tcgen05 as tm
from wsdsl.ir.ops import tile as t
from wsdsl.prover.machine import scalars
from wsdsl.prover.machine.instructions import Run
from wsdsl.prover.memory import dsmem, smem, smem_loads, smem_stores, tmem, wgmma
from wsdsl.prover.protocols import cta_barriers, mbarriers

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
    **dict.fromkeys((k.ClearCounters, k.StoreCounters), smem_stores.own_counters),
    **dict.fromkeys((b.AllocateBarriers, m.AllocateShared, m.AllocateGlobal), scalars.nothing),
    **dict.fromkeys((m.MakeTensorMap, tm.AllocateTensorMemory, tm.TensorColumns), scalars.nothing),
    **dict.fromkeys((b.WaitPredecessor, b.LaunchDependents), scalars.nothing),
    **by_op(smem, wgmma, scalars, smem_loads, smem_stores, tmem),
    **by_op(dsmem, cta_barriers, mbarriers),
}
