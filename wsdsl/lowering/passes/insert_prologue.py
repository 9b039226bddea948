"""Begin the kernel: initialize mbarriers, allot registers, elect the loading thread (SCHEDULED).

Before:
    %full: mbarrier<4> = allocate_mbarriers(label="full", arrivals=1)
    partition(role="load", registers=40) { ... }
    partition(role="compute", num_warps=8, registers=232) { ... }
After:
    %full: mbarrier<4> = allocate_mbarriers(label="full", arrivals=1)
    elect() {
      mbarrier_init(barriers=%full)
      fence_mbarrier_init()
      prefetch_tensor_map(map=%a_map)
    }
    griddep_wait()
    griddep_launch_dependents()
    sync_cta()
    partition(role="load", registers=40) {
      setmaxnreg(count=40, increase=False)
      elect() { ... }
    }
    partition(role="compute", num_warps=8, registers=232) {
      setmaxnreg(count=232, increase=True)
      ...
    }

The prologue may run while the previous kernel on the stream still runs; later accesses must not. A
load partition that only copies tensors of `Schedule.pdl_independent` does not wait; then each other
partition waits separately:

    sync_cta()
    partition(role="load", registers=56) {
      setmaxnreg(count=56, increase=False)
      elect() { ... copies of B ... }
    }
    partition(role="load", registers=56) {
      setmaxnreg(count=56, increase=False)
      griddep_wait()
      elect() { ... copies of A ... }
    }
    partition(role="compute", registers=232) {
      setmaxnreg(count=232, increase=True)
      griddep_wait()
      griddep_launch_dependents()
      ...
    }

If a load partition prefetches its first tiles to L2 (`lowering/early_loads.py`), every partition
waits separately, the load partition after the prefetch:

    partition(role="load", registers=40) {
      setmaxnreg(count=40, increase=False)
      elect() { ... prefetch_box(map=%b_map, coordinates=(%n, %k)) ... }
      griddep_wait()
      elect() { ... copies ... }
    }

Loads in parts, by another thread of a load partition's warpgroup, wait in any case.

The next kernel may start after all CTAs have waited: only this kernel may then still write tensors
that are constant to the next one. With `Schedule.launch_pdl=False` it starts when all have ended.

If CTAs of a cluster access each other's SMEM, all of them synchronize before the first access. This
takes longer, so it is done while the previous kernel still runs; in a memory-bound kernel whose
rows they share, while the first loads are in flight.

TMEM is allocated before the partitions, where all threads synchronize, and freed after they have
synchronized again. Both CTAs of a pair do so, and only the first has a partition that issues MMAs.

Why here: all barriers and tensor maps are known.
"""

from wsdsl.ir import ops
from wsdsl.ir.analysis.early_start import constant_tensors, only_reads
from wsdsl.ir.analysis.tensor_accesses import mapped_tensors
from wsdsl.ir.op import Kernel, Op, Region, with_fields
from wsdsl.ir.rewriter import Namer, walk
from wsdsl.ir.types import Barriers, Columns, TensorMap, TensorMemory
from wsdsl.ir.verify.synchronization import reaches_others, reaching
from wsdsl.lowering.builder import FLAG, Builder
from wsdsl.lowering.cooperation import by_one_thread
from wsdsl.lowering.cta_pairs import LEADER, group_of, in_pairs
from wsdsl.lowering.early_loads import first_boxes


def insert_prologue(kernel: Kernel) -> Kernel:
    partitions = [op for op in kernel.body if isinstance(op, ops.Partition)]
    barriers, maps = kernel.making(Barriers), kernel.making(TensorMap)
    memory, columns = kernel.making(TensorMemory), kernel.making(Columns)
    first: list[Op] = [ops.MbarrierInit(barriers=b.result) for b in barriers]
    if barriers:
        first.append(ops.FenceMbarrierInit())
    first += [ops.PrefetchTensorMap(map=m.result) for m in maps]
    prologue: list[Op] = [ops.Elect(body=tuple(first))] if first else []
    maps_of, constant = mapped_tensors(kernel), constant_tensors(kernel)
    loading = (op for op in partitions if op.role == "load" and op.num_warpgroups)
    early = [op for op in loading if only_reads(kernel, op.body, constant)]
    overlap = kernel.schedule is None or kernel.schedule.launch_pdl is not False
    after: list[Op] = [ops.GriddepLaunchDependents()] if overlap else []
    together = bool(reaching(kernel))
    late = together and len(partitions) == 1 and bool(kernel.of(ops.StorePartials))
    if together and not late:
        prologue.append(ops.SyncCluster(relaxed=True))
    namer = Namer.of(kernel)
    ahead = {op: first_boxes(op, maps_of, namer) for op in partitions if op.asks_early}
    apart = bool(early) or any(ahead.values())
    if not apart:
        prologue += [ops.GriddepWait(), *after]
    freed: list[Op] = []
    if memory:
        group = group_of(kernel)
        meet = ops.SyncCta() if group == 1 else ops.SyncCluster()
        fenced = [ops.Tcgen05Fence(), meet, ops.Tcgen05Fence(after=True)]
        prologue += [*(with_fields(op, cta_group=group) for op in memory), *fenced, *columns]
        freed = [*fenced, *(ops.Tcgen05Dealloc(memory=m.result, cta_group=group) for m in memory)]
    elif barriers and not together:
        prologue.append(ops.SyncCta())
    entry = kernel.target.entry_registers(sum(op.num_warpgroups for op in partitions))
    moved = {*memory, *columns, *partitions}
    declared = [op for op in kernel.body if op not in moved]
    begun: list[ops.Partition] = []
    for op in partitions:
        op = with_fields(op, body=_meeting(op.body)) if late else op
        boxes = ahead.get(op, ())
        own: list[Op] = [ops.Elect(body=boxes)] if boxes else []
        own += [ops.GriddepWait()] if apart and op not in early else []
        first_to_read = all(p.role in ("load", "mma") for p in begun)
        if own and op.role not in ("load", "mma") and first_to_read:
            own += after
        if op.role == "mma" and in_pairs(kernel.schedule):
            op = with_fields(op, body=_by_leader(kernel, op))
        begun.append(_begin(op, own, entry))
    return kernel.with_body((*declared, *prologue, *begun, *freed))


def _meeting(body: Region) -> Region:
    """Synchronize the cluster after the first loads, before the first transfer. The loads are in
    order: ptxas would otherwise move loads of read-only tensors after the barrier.
    """
    first = next(i for i, op in enumerate(body) if any(map(reaches_others, walk((op,)))))
    loads = (i for i, op in enumerate(body[:first]) if isinstance(op, ops.LoadGlobal))
    at = max(loads, default=-1) + 1
    asked = (
        with_fields(op, in_order=True) if isinstance(op, ops.LoadGlobal) else op for op in body[:at]
    )
    return (*asked, ops.SyncCluster(relaxed=True, loc=body[first].loc), *body[at:])


def _by_leader(kernel: Kernel, op: ops.Partition) -> Region:
    """Return the body for a thread of the first CTA of a pair, which issues MMAs for both."""
    b = Builder(Namer.of(kernel))
    with b.region() as first:
        leads = b.map("eq", b.rank(), b.integer(LEADER), type=FLAG, wish="leads")
    then = (*op.body, ops.Yield())
    return (*first, ops.If(cond=leads, then=then, orelse=(ops.Yield(),), loc=op.loc))


def _begin(op: ops.Partition, first: list[Op], entry: int) -> ops.Partition:
    body = op.body
    if by_one_thread(op):
        body = (ops.Elect(body=body, loc=op.loc),)
    body = (*first, *body)
    if op.registers:
        increase = op.role == "compute" or (op.role == "decode" and op.registers >= entry)
        own = ops.Setmaxnreg(count=op.registers, increase=increase, loc=op.loc)
        body = (own, *body)
    return with_fields(op, body=body)
