"""Rules of SCHEDULED kernels about allocation and accesses of tensor memory, which ptxas does not
check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from wsdsl.ir import ops
from wsdsl.ir import types as t
from wsdsl.ir.hardware.tcgen05_shapes import CELL_BITS
from wsdsl.ir.op import Kernel, Op, Problem, Value, in_family, walk
from wsdsl.ir.op_fields import op_name
from wsdsl.ir.ops import Partition, SyncCluster, SyncCta, TmaLoad, WgmmaMmaAsync
from wsdsl.ir.verify.synchronization import cluster_of

TENSOR_OPS = in_family("tcgen05")


def mmas_match_target(kernel: Kernel) -> Iterator[Problem]:
    """wgmma is sm_90a's alone, tensor memory that of what followed."""
    target = kernel.target
    for op in kernel.of(WgmmaMmaAsync) if target.has_tensor_memory else ():
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
    own = kernel.of(*TENSOR_OPS)
    taken = kernel.of(ops.Tcgen05Alloc)
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
    parts = [i for i, op in enumerate(body) if isinstance(op, (Partition, ops.TmemColumns))]
    if not all(first < i < last for i in parts):
        yield taken[0], "tensor memory must be allocated before all partitions, and freed after"
        return
    begin, end = min(parts, default=last), max(parts, default=first)
    kind = SyncCluster if taken[0].cta_group > 1 else SyncCta
    told = f"tcgen05_fence, {op_name(kind)}, tcgen05_fence(after)"
    if not _meets(body[first + 1 : begin], kind):
        yield taken[0], f"all threads must synchronize after the allocation: {told}"
    if not _meets(body[end + 1 : last], kind):
        yield freed[0], f"all threads must synchronize before the free: {told}"
    if kind is SyncCluster and not any(isinstance(op, SyncCluster) for op in body[:first]):
        yield taken[0], "a CTA pair needs a sync_cluster before its allocation"
    if freed[0].memory != taken[0].result:
        yield freed[0], f"the free names {freed[0].memory}, not {taken[0].result}"


def _meets(members: list[Op], kind: type[Op]) -> bool:
    wanted: list[Callable[[Op], bool]] = [
        lambda op: isinstance(op, ops.Tcgen05Fence) and not op.after,
        lambda op: isinstance(op, kind) and not getattr(op, "relaxed", False),
        lambda op: isinstance(op, ops.Tcgen05Fence) and op.after,
    ]
    for op in members:
        if wanted and wanted[0](op):
            wanted.pop(0)
    return not wanted


def columns_are_disjoint(kernel: Kernel) -> Iterator[Problem]:
    taken: list[tuple[int, int]] = []
    for op in kernel.of(ops.TmemColumns):
        kind = op.result.type_as(t.Columns)
        end = op.first + kind.columns * kind.num
        if any(op.first < stop and start < end for start, stop in taken):
            yield op, "overlaps other columns"
        taken.append((op.first, end))


def _rows(kernel: Kernel) -> dict[Value, set[int]]:
    """M extents of the MMAs that access each TMEM buffer."""
    rows = dict[Value, set[int]]()
    for op in kernel.of(ops.Tcgen05Mma):
        for value in (op.sums, op.a):
            rows.setdefault(value, set()).add(op.rows)
    return rows


def stores_match_mmas(kernel: Kernel) -> Iterator[Problem]:
    """Check that MMAs read elements of the stored size, and loads and stores no second half of 64
    rows.
    """
    rows, bits_of = _rows(kernel), dict[Value, int]()
    for op in kernel.of(ops.Tcgen05Mma):
        bits_of |= {op.sums: CELL_BITS, op.a: t.DTYPES[op.dtype].bits}
    for op in kernel.of(ops.Tcgen05St):
        kind, bits = op.value.as_fragment, bits_of.get(op.columns)
        if not bits:
            yield op, f"no MMA reads {op.columns}"
        elif bits != kind.dtype.bits:
            yield op, f"MMAs read elements of {bits} bits here, not {kind.dtype}"
    for op in kernel.of(ops.Tcgen05Ld, ops.Tcgen05St):
        columns = op.sums if isinstance(op, ops.Tcgen05Ld) else op.columns
        if op.half and rows.get(columns) == {64}:
            yield op, "MMAs of 64 rows have no second half"


def stores_are_whole(kernel: Kernel) -> Iterator[Problem]:
    """Of both halves of the lanes, where products read all of them."""
    rows = _rows(kernel)
    stored = dict[tuple[Value, Value], list[ops.Tcgen05St]]()
    for op in kernel.of(ops.Tcgen05St):
        stored.setdefault((op.columns, op.state), []).append(op)
    for (columns, _), own in stored.items():
        halves = [{(op.column, op.width) for op in own if op.half == half} for half in (0, 1)]
        if rows.get(columns) == {128} and halves[0] != halves[1]:
            yield own[0], "MMAs read 128 rows here, but only one half of them is stored"


def warpgroup_columns_are_disjoint(kernel: Kernel) -> Iterator[Problem]:
    """Those of a partition that run the same loads and stores."""
    for p in kernel.of(Partition) if kernel.of(ops.Tcgen05Ld, ops.Tcgen05St) else ():
        for op in walk(p.body):
            if not isinstance(op, (ops.Tcgen05Ld, ops.Tcgen05St)):
                continue
            kind = (op.sums if isinstance(op, ops.Tcgen05Ld) else op.columns).type
            last = op.column + (p.num_warpgroups - 1) * op.apart + op.width
            if p.num_warpgroups > 1 and op.apart < op.width:
                yield op, f"{p.num_warpgroups} warpgroups access the same columns"
            if isinstance(kind, t.Columns) and last > kind.columns:
                yield op, f"column {last} exceeds an item of {kind.columns} columns"


def loads_are_waited_for(kernel: Kernel) -> Iterator[Problem]:
    """The wait is in the region of the load: loops and branches yield fragments."""
    loaded = {op.result: op for op in kernel.of(ops.Tcgen05Ld)}
    waits = {v for op in kernel.of(ops.Tcgen05WaitLd) for v in op.loads}
    for value, op in loaded.items():
        if value not in waits:
            yield op, f"no tcgen05_wait_ld waits for {value}"
    for op in kernel.of(ops.Tcgen05WaitLd):
        for value in op.loads:
            if value not in loaded:
                yield op, f"{value} is not the result of a tcgen05_ld"


def mmas_have_one_thread(kernel: Kernel) -> Iterator[Problem]:
    """MMAs of two threads are not ordered; and one thread cannot read accumulators."""
    if not kernel.of(ops.Tcgen05Mma):
        return
    parts = [op for op in kernel.body if isinstance(op, Partition)]
    makers = [p for p in parts if any(isinstance(o, ops.Tcgen05Mma) for o in walk(p.body))]
    for p in makers[1:]:
        yield p, "only one partition can issue MMAs into tensor memory"
    for p in makers:
        if any(isinstance(o, (ops.Tcgen05Ld, ops.Tcgen05St)) for o in walk(p.body)):
            yield p, "the partition of the MMAs cannot load or store accumulators"
    inside = {id(o) for p in parts for o in walk(p.body)}
    for op in kernel.of(ops.Tcgen05Mma):
        if id(op) not in inside:
            yield op, "MMAs must be within a partition"


def pairs_agree(kernel: Kernel) -> Iterator[Problem]:
    """All that the instructions of a kernel say of a `cta_group` is the same, and the cluster
    has pairs of adjacent CTAs.
    """
    said = kernel.having("cta_group")
    of = [op for op in said if getattr(op, "cta_group", 1) != 1]
    loads = [op for op in kernel.of(TmaLoad) if op.cta is not None]
    for op in of:
        if getattr(op, "cta_group", 1) != 2 or cluster_of(kernel) % 2:
            yield op, "cta_group must be 1, or 2 in a cluster with an even number of CTAs"
    for op in said if of else ():
        if getattr(op, "cta_group", 2) != 2:
            yield op, "cta_group=1 cannot be combined with cta_group=2 of other ops"
    for op in loads:
        if not of or op.multicast is not None:
            told = "needs a CTA pair" if not of else "excludes `multicast`"
            yield op, f"`cta` {told}"
