"""How each SCHEDULED op runs on the abstract machine. What is missing here is refused by name."""

from __future__ import annotations

from wsdsl.ir import ops
from wsdsl.ir.op import THREADS, Op, by_op, effects
from wsdsl.prover.machine import scalars
from wsdsl.prover.machine.instructions import Run
from wsdsl.prover.memory import smem_accesses, tmem, wgmma_operands
from wsdsl.prover.memory.smem_effects import access_smem
from wsdsl.prover.protocols import cta_barriers, mbarriers

HANDLERS: dict[type[Op], Run] = {
    **{cls: access_smem for cls in THREADS if effects(cls)},
    ops.Map: scalars.map_scalars,
    ops.CtaIndex: scalars.place(lambda model, a: model.cta_index(a.cta)),
    ops.NumCtas: scalars.place(lambda model, _: model.count("ctas")),
    ops.ClusterIndex: scalars.place(lambda model, a: model.cluster_index(a.cta)),
    ops.NumClusters: scalars.place(lambda model, _: model.count("clusters")),
    ops.CtaRank: scalars.place(lambda model, a: model.cta_rank(a.cta)),
    ops.WarpgroupIndex: scalars.place(lambda _, a: a.rank),
    **dict.fromkeys((ops.Cast, ops.Bitcast, ops.Full, ops.Iota), scalars.opaque),
    **dict.fromkeys((ops.ReduceColumns, ops.MmaSync, ops.ScanColumns), scalars.fresh),
    **dict.fromkeys(
        (ops.AllocateMbarriers, ops.AllocateShared, ops.AllocateGlobal), scalars.nothing
    ),
    **dict.fromkeys((ops.MakeTensorMap, ops.Tcgen05Alloc, ops.TmemColumns), scalars.nothing),
    **dict.fromkeys((ops.GriddepWait, ops.GriddepLaunchDependents), scalars.nothing),
    **by_op(smem_accesses, wgmma_operands, scalars, tmem),
    **by_op(cta_barriers, mbarriers),
}
