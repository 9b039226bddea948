"""Rules of SCHEDULED kernels about allocation and accesses of tensor memory, which ptxas does not
check.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wsdsl.ir import ops
from wsdsl.ir import types as t
from wsdsl.ir.effects import RANK, Access, Fence, Span, Wait
from wsdsl.ir.hardware.tcgen05_shapes import CELL_BITS
from wsdsl.ir.op import THREADS, Kernel, Op, Problem, Value, in_family, once, results_of
from wsdsl.ir.ops import Partition
from wsdsl.ir.verify.synchronization import cluster_of

TENSOR_OPS = in_family("tcgen05")


@once
def _accesses(kernel: Kernel) -> Sequence[tuple[Op, Value, Access, Span]]:
    """Return the accesses to TMEM that effects state: op, buffer, effect and span."""
    told = [(op, e) for op, stated in kernel.effects for e in stated if isinstance(e, Access)]
    spans = [(op, e, span) for op, e in told for warp in e.spans for span in warp]
    return [(op, e.of, e, s) for op, e, s in spans if e.space == "tmem" and e.of is not None]


def by_one_thread(op: Op) -> bool:
    """Whether an op that accesses TMEM runs in the order of MMAs."""
    return THREADS[type(op)] == "one"


def mmas_match_target(kernel: Kernel) -> Iterator[Problem]:
    """wgmma is sm_90a's alone, tensor memory that of what followed."""
    target = kernel.target
    for op in kernel.of(*in_family("wgmma")) if target.has_tensor_memory else ():
        if not op.pure:
            yield op, f"{target} has no wgmma: accumulate in tensor memory"
    for op in () if target.has_tensor_memory else kernel.of(*TENSOR_OPS):
        yield op, f"{target} has no tensor memory"
    for op in () if target.multiplies_integers else kernel.of(ops.Tcgen05Mma):
        if (a := t.DTYPES.get(op.dtype)) and a.is_integer:
            yield op, f"{target} cannot multiply {a}"


def tensor_memory_is_freed(kernel: Kernel) -> Iterator[Problem]:
    """It is allocated once, before the partitions, and freed once, after the partitions, with all
    threads synchronized and fenced, on every path.
    """
    own, taken = kernel.of(*TENSOR_OPS), kernel.making(t.TensorMemory)
    freed = kernel.of(ops.Tcgen05Dealloc)
    if not own:
        return
    if len(taken) != 1 or len(freed) != 1:
        yield (taken or own)[0], "tensor memory must be allocated once, and freed once"
        return
    body = [*kernel.body]
    if taken[0] not in body or freed[0] not in body:
        yield taken[0], "tensor memory must be allocated and freed outside of any region"
        return
    first, last = body.index(taken[0]), body.index(freed[0])
    inner = [isinstance(op, Partition) or op.result_type is t.Columns for op in body]
    parts = [i for i, is_inside in enumerate(inner) if is_inside]
    if not all(first < i < last for i in parts):
        yield taken[0], "tensor memory must be allocated before all partitions, and freed after"
        return
    begin, end = min(parts, default=last), max(parts, default=first)
    wait = Wait("cluster" if taken[0].cta_group > 1 else "cta")
    told = f"threads of the {wait.on} must synchronize between a TMEM fence and one with `after`"
    if not _meets(body[first + 1 : begin], wait, kernel):
        yield taken[0], f"after the allocation all {told}"
    if not _meets(body[end + 1 : last], wait, kernel):
        yield freed[0], f"before the free all {told}"
    if wait.on == "cluster" and not any(wait in kernel.effects_of[id(op)] for op in body[:first]):
        yield taken[0], "before its allocation the threads of a CTA pair must synchronize"
    if freed[0].memory != taken[0].result:
        yield freed[0], f"the free names {freed[0].memory}, not {taken[0].result}"


def _meets(members: list[Op], wait: Wait, kernel: Kernel) -> bool:
    fence = Fence("tmem")
    wanted = [(fence, "after", False), (wait, "relaxed", False), (fence, "after", True)]
    for op in members:
        for effect, flag, is_set in wanted[:1]:
            if effect in kernel.effects_of[id(op)] and getattr(op, flag, False) == is_set:
                wanted.pop(0)
    return not wanted


def columns_are_disjoint(kernel: Kernel) -> Iterator[Problem]:
    taken: list[tuple[int, int]] = []
    for op in kernel.making(t.Columns):
        kind = op.result.type_as(t.Columns)
        end = op.first + kind.columns * kind.num
        if any(op.first < stop and start < end for start, stop in taken):
            yield op, "overlaps other columns"
        taken.append((op.first, end))


def _halves(kernel: Kernel) -> dict[Value, set[int | None]]:
    """The halves of the lanes that MMAs access in each TMEM buffer; 64 rows are the first one."""
    halves = dict[Value, set[int | None]]()
    for op, of, _, span in _accesses(kernel):
        if by_one_thread(op):
            halves.setdefault(of, set()).add(span.half)
    return halves


def stores_match_mmas(kernel: Kernel) -> Iterator[Problem]:
    """Check that MMAs read elements of the stored size, and loads and stores no second half of 64
    rows.
    """
    halves, bits_of = _halves(kernel), dict[Value, int]()
    for op in kernel.of(ops.Tcgen05Mma):
        bits_of |= {op.sums: CELL_BITS, op.a: t.DTYPES[op.dtype].bits}
    for op in kernel.of(ops.Tcgen05St):
        kind, bits = op.value.as_fragment, bits_of.get(op.columns)
        if not bits:
            yield op, f"no MMA reads {op.columns}"
        elif bits != kind.dtype.bits:
            yield op, f"MMAs read elements of {bits} bits here, not {kind.dtype}"
    for op, of, _, span in _accesses(kernel):
        if span.half and halves.get(of) == {0}:
            yield op, "MMAs of 64 rows have no second half"


def stores_are_whole(kernel: Kernel) -> Iterator[Problem]:
    """Of both halves of the lanes, where products read all of them."""
    stored = dict[tuple[Value, Value | None], list[tuple[Op, Span]]]()
    for op, of, access, span in _accesses(kernel):
        if access.kind == "write" and not by_one_thread(op):
            stored.setdefault((of, access.item), []).append((op, span))
    halves = _halves(kernel)
    for (of, _), own in stored.items():
        first, second = ({(s.start, s.size) for _, s in own if s.half == x} for x in (0, 1))
        if halves.get(of) == {0, 1} and first != second:
            yield own[0][0], "MMAs read 128 rows here, but only one half of them is stored"


def warpgroup_columns_are_disjoint(kernel: Kernel) -> Iterator[Problem]:
    """Those of a partition that run the same loads and stores."""
    for op, of, _, span in _accesses(kernel):
        partition = ops.enclosing_partitions(kernel).get(id(op))
        count, apart = partition.num_warpgroups if partition else 1, dict(span.terms).get(RANK, 0)
        if count == 1 or by_one_thread(op):
            continue
        last = span.start + (count - 1) * apart + span.size
        if apart < span.size:
            yield op, f"{count} warpgroups access the same columns"
        if last > of.type_as(t.Columns).columns:
            yield op, f"column {last} exceeds an item of {of.type_as(t.Columns).columns} columns"


def loads_are_waited_for(kernel: Kernel) -> Iterator[Problem]:
    """The wait is in the region of the load: loops and branches yield fragments."""
    reads = (op for op, _, access, _ in _accesses(kernel) if access.kind == "read")
    loaded = {v: op for op in reads for v in results_of(op)}
    waits = [(op, v) for op in kernel.having("loads") for v in getattr(op, "loads", ())]
    for value, op in loaded.items():
        if value not in {v for _, v in waits}:
            yield op, f"no wait covers the load of {value}"
    for op, value in waits:
        if value not in loaded:
            yield op, f"{value} is not the result of a load from TMEM"


def mmas_have_one_thread(kernel: Kernel) -> Iterator[Problem]:
    """MMAs of two threads are not ordered; and one thread cannot read accumulators."""
    makers, others = list[Partition](), set[int]()
    for op in {id(op): op for op, *_ in _accesses(kernel)}.values():
        p = ops.enclosing_partitions(kernel).get(id(op))
        if not by_one_thread(op):
            others.add(id(p))
        elif p is None:
            yield op, "MMAs must be within a partition"
        elif not any(p is maker for maker in makers):
            makers.append(p)
    for p in makers[1:]:
        yield p, "only one partition can issue MMAs into tensor memory"
    for p in makers:
        if id(p) in others:
            yield p, "the partition of the MMAs cannot load or store accumulators"


def pairs_agree(kernel: Kernel) -> Iterator[Problem]:
    """All that the instructions of a kernel say of a `cta_group` is the same, and the cluster
    has pairs of adjacent CTAs.
    """
    said = kernel.having("cta_group")
    of = [op for op in said if getattr(op, "cta_group", 1) != 1]
    loads = [op for op in kernel.having("map") if getattr(op, "cta", None) is not None]
    for op in of:
        if getattr(op, "cta_group", 1) != 2 or cluster_of(kernel) % 2:
            yield op, "cta_group must be 1, or 2 in a cluster with an even number of CTAs"
    for op in said if of else ():
        if getattr(op, "cta_group", 2) != 2:
            yield op, "cta_group=1 cannot be combined with cta_group=2 of other ops"
    for op in loads:
        if not of or getattr(op, "multicast", None) is not None:
            told = "needs a CTA pair" if not of else "excludes `multicast`"
            yield op, f"`cta` {told}"
