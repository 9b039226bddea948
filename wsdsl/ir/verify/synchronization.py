"""Static rules of SCHEDULED kernels about clusters, barriers, SMEM and registers.

The simulator and the prover check the order of execution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wsdsl.ir import ops
from wsdsl.ir.analysis.tensor_accesses import touch_in
from wsdsl.ir.effects import Access, Arrive, Fence, Wait, reaches_cluster
from wsdsl.ir.hardware.swizzle import SMEM_ALIGN
from wsdsl.ir.op import Kernel, Op, Problem, Region, Value, once, operands, regions, results_of
from wsdsl.ir.ops import NamedBarrier, Partition, by_warpgroup
from wsdsl.ir.rewriter import walk
from wsdsl.ir.types import Barriers, Shared


def clusters_are_launched(kernel: Kernel) -> Iterator[Problem]:
    ctas = cluster_of(kernel)
    for op in kernel.having("ctas") if ctas > 1 else ():
        if _signaled(op) not in (1, ctas):
            yield op, f"ctas={_signaled(op)}: the cluster has {ctas} CTAs"
    clustered = [op for op in kernel.ops if op.of_cluster] if ctas == 1 else ()
    for op in (*clustered, *reaching(kernel)) if ctas == 1 else ():
        yield op, "a kernel without launch_grid(cluster=...) has no cluster"


def named_barriers_agree(kernel: Kernel) -> Iterator[Problem]:
    """Barrier 0 is that of the CTA; all ops of another barrier must expect as many warpgroups."""
    groups = ops.num_warpgroups(kernel)
    expected: dict[int, int] = {}
    for op in (op for op in kernel.ops if isinstance(op, NamedBarrier)):
        if op.num_warpgroups > groups:
            yield op, f"{op.num_warpgroups} warpgroups synchronize; the kernel has {groups}"
        for barrier in op.numbers:
            if expected.setdefault(barrier, op.num_warpgroups) != op.num_warpgroups:
                yield op, f"another op has {expected[barrier]} warpgroups at barrier {barrier}"


def lone_warps_share_warpgroups(kernel: Kernel) -> Iterator[Problem]:
    """Partitions of one thread follow in the warps of one warpgroup: those pass over each other's
    `elect`, and would stop at anything that is outside of it."""
    for together in by_warpgroup([op for op in kernel.body if isinstance(op, Partition)]):
        host, *others = together
        if not host.num_warpgroups or len(together) > 4:
            yield together[-1], "no warp of the warpgroup is left for this partition of one thread"
        for op in (op for p in together for op in p.body if others):
            scalar = results_of(op) and not regions(op)
            if not (scalar or op.by_lone_warps):
                yield op, "warps of other partitions would wait here: put it in elect()"


def barriers_are_initialized(kernel: Kernel) -> Iterator[Problem]:
    """Every barrier once; then the fence and a synchronization, before any partition starts."""
    stated = [(i, e) for i, (_, effects) in enumerate(kernel.effects) for e in effects]
    written = [(i, e.of) for i, e in stated if isinstance(e, Access) and e.space == "mbarrier"]
    for op in kernel.making(Barriers):
        if [value for _, value in written].count(op.result) != 1:
            yield op, "a barrier must be initialized exactly once"
    if not written:
        return
    last = written[-1][0]
    used = (i for i, op in enumerate(kernel.ops) if i > last and _uses_barriers(op))
    first_use = next(used, len(kernel.ops))
    fences = [i for i, e in stated if isinstance(e, Fence) and e.of == "mbarrier"]
    meetings = ("cluster",) if reaching(kernel) else ("cluster", "cta")
    meets = [i for i, e in stated if isinstance(e, Wait) and e.on in meetings]
    if not any(last < i < first_use for i in fences):
        yield kernel.ops[last], "fence_mbarrier_init must follow the initialization"
    elif not any(max(fences) < i < first_use for i in meets):
        name = "sync_cluster" if reaching(kernel) else "sync_cta"
        rule = f"all threads must synchronize ({name}) before the barriers are used"
        yield kernel.ops[last], rule


def _uses_barriers(op: Op) -> bool:
    return any(isinstance(value.type, Barriers) for value in operands(op))


def expected_bytes_are_loaded(kernel: Kernel) -> Iterator[Problem]:
    """An mbarrier_arrive_expect_tx announces the bytes of the copies in its region on the same
    barrier and state. The prover counts the bytes of other CTAs.
    """
    counted, others = dict[int, Arrive](), set[Value | None]()
    for op, effects in kernel.effects:
        for effect in (e for e in effects if isinstance(e, Arrive) and e.tx):
            counted[id(op)] = effect
            if effect.tx < 0 and (reaches_cluster(effect) or touch_in(effects) is None):
                others.add(effect.of)

    def visit(region: Region) -> Iterator[Problem]:
        sums: dict[object, int] = {}
        own = [(op, counted[id(op)]) for op in region if id(op) in counted]
        own = [(op, e, (e.of, e.item)) for op, e in own if e.of not in others]
        for _, arrive, key in own:
            if arrive.tx < 0:
                sums[key] = sums.get(key, 0) - arrive.tx
        for op, arrive, key in own:
            if arrive.tx > 0 and (loaded := sums.pop(key, 0)) != arrive.tx:
                yield op, f"{arrive.tx} bytes are expected; the copies bring {loaded}"
        for op, arrive, key in own:
            if arrive.tx < 0 and key in sums:
                yield op, "no mbarrier_arrive_expect_tx expects the bytes of this copy"
        for op in region:
            for inner in regions(op):
                yield from visit(inner)

    yield from visit(kernel.body)


def shared_memory_is_disjoint(kernel: Kernel) -> Iterator[Problem]:
    taken: list[range] = []
    for op, own in kernel.allocations:
        if own.start >= 0:
            if own.start % op.smem_align:
                yield op, f"must start at a multiple of {op.smem_align} bytes"
            if own.stop > kernel.target.smem_bytes:
                yield op, f"ends at byte {own.stop} of {kernel.target.smem_bytes}"
            for other in taken:
                if own.start < other.stop and other.start < own.stop:
                    yield op, f"overlaps the allocation at byte {other.start}"
            taken.append(own)


def items_are_aligned(kernel: Kernel) -> Iterator[Problem]:
    units = dict[Value, int]()
    for op in kernel.ops:
        for value in operands(op):
            if isinstance(value.type, Shared):
                units[value] = max(units.get(value, 0), op.item_align(kernel.definers))
    for op in kernel.making(Shared):
        kind, unit = op.result.type_as(Shared), units.get(op.result, SMEM_ALIGN)
        if kind.num > 1 and kind.bytes % unit:
            yield op, f"an item must be a multiple of {unit} bytes, as the next item follows it"


def registers_are_conserved(kernel: Kernel) -> Iterator[Problem]:
    """Some warpgroups acquire the registers that others release; each partition does so once."""
    partitions = [op for op in kernel.body if isinstance(op, Partition) and op.num_warpgroups]
    groups = ops.num_warpgroups(kernel)
    sets = [[op for op in walk(p.body) if isinstance(op, ops.Setmaxnreg)] for p in partitions]
    if not any(sets):
        for p in partitions:
            if p.registers:
                yield p, f"no setmaxnreg sets its {p.registers} registers per thread"
        return
    total = 0
    for p, found in zip(partitions, sets, strict=True):
        if len(found) != 1 or found[0] not in p.body:
            yield p, "each partition must set its registers exactly once, with all of its warps"
            return
        if found[0].count != p.registers:
            yield found[0], f"{found[0].count} registers per thread, not {p.registers}"
        total += found[0].count * p.num_warpgroups
    # ptxas gives no more at entry than the largest count that is set.
    entry = min(kernel.target.entry_registers(groups), max(found[0].count for found in sets))
    if total > entry * groups:
        yield partitions[0], f"warpgroups need {total} registers; {entry * groups} are available"
    for found in sets:
        more, less = found[0].count > entry, found[0].count < entry
        if less if found[0].increase else more:
            yield found[0], f"{found[0].count} registers per thread; at entry a thread has {entry}"


def cluster_of(kernel: Kernel) -> int:
    grid = ops.grid_of(kernel)
    return 1 if grid is None else grid.cluster


def reaches_others(op: Op) -> bool:
    """Whether it is about SMEM of other CTAs of the cluster."""
    if getattr(op, "cta_group", 1) > 1 or _signaled(op) > 1:
        return True
    return getattr(op, "cta", None) is not None or getattr(op, "multicast", None) is not None


def _signaled(op: Op) -> int:
    """Return the number of CTAs whose mbarriers an op signals."""
    return getattr(op, "ctas", 1) if hasattr(op, "barriers") else 1


@once
def reaching(kernel: Kernel) -> Sequence[Op]:
    """Return the ops that access SMEM of other CTAs of the cluster."""
    names = "ctas", "cta_group", "cta", "multicast"
    return [op for name in names for op in kernel.having(name) if reaches_others(op)]
