"""How each SCHEDULED op runs on the abstract machine. What is missing here is refused by name."""

from __future__ import annotations

from wsdsl.ir import ops
from wsdsl.ir.op import Op, by_op
from wsdsl.prover.machine import scalars
from wsdsl.prover.machine.instructions import Run
from wsdsl.prover.memory import dsmem, smem, smem_loads, smem_stores, tmem, wgmma
from wsdsl.prover.protocols import cta_barriers, mbarriers

HANDLERS: dict[type[Op], Run] = {
    ops.Map: scalars.map_scalars,
    ops.CtaIndex: scalars.place(lambda model, a: model.cta_index(a.cta)),
    ops.NumCtas: scalars.place(lambda model, _: model.count("ctas")),
    ops.ClusterIndex: scalars.place(lambda model, a: model.cluster_index(a.cta)),
    ops.NumClusters: scalars.place(lambda model, _: model.count("clusters")),
    ops.CtaRank: scalars.place(lambda model, a: model.cta_rank(a.cta)),
    ops.WarpgroupIndex: scalars.place(lambda _, a: a.rank),
    **dict.fromkeys((ops.Cast, ops.Bitcast, ops.Full, ops.Iota), scalars.opaque),
    **dict.fromkeys((ops.ReduceColumns, ops.MmaSync, ops.ScanColumns), scalars.fresh),
    **dict.fromkeys((ops.ClearBins, ops.StoreBins), smem_stores.own_counters),
    **dict.fromkeys(
        (ops.AllocateMbarriers, ops.AllocateShared, ops.AllocateGlobal), scalars.nothing
    ),
    **dict.fromkeys((ops.MakeTensorMap, ops.Tcgen05Alloc, ops.TmemColumns), scalars.nothing),
    **dict.fromkeys((ops.GriddepWait, ops.GriddepLaunchDependents), scalars.nothing),
    **by_op(smem, wgmma, scalars, smem_loads, smem_stores, tmem),
    **by_op(dsmem, cta_barriers, mbarriers),
}
