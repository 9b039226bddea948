"""Rules of SCHEDULED kernels about tensor memory: what is allocated, who may reach what, and what
the fields of a product may be. The assembler looks at none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from wsdsl.ir import ops
from wsdsl.ir import types as t
from wsdsl.ir.hardware.block_scale_factors import are_scaled
from wsdsl.ir.hardware.tcgen05_shapes import CELL_BITS, COLUMNS, LEAST_ALLOCATED, shape_fault
from wsdsl.ir.hardware.wgmma_shapes import k_step, may_be_mn_major, sum_of
from wsdsl.ir.op import Kernel, Op, Problem, Value, in_family, walk
from wsdsl.ir.op_fields import op_name
from wsdsl.ir.ops import Partition, SmemDescriptor, SyncCluster, SyncCta, TmaLoad, WgmmaMmaAsync
from wsdsl.ir.verify.synchronization import cluster_of

TENSOR_OPS = in_family("tcgen05")
ADDRESS_BYTES = 4
STORED_BITS = (16, 32)
"""Of elements that threads write to tensor memory."""


HALF = "MMAs of 64 rows have no second half"


def products_are_of_the_card(kernel: Kernel) -> Iterator[Problem]:
    """wgmma is sm_90a's alone, tensor memory that of what followed."""
    target = kernel.target
    for op in kernel.of(WgmmaMmaAsync) if target.has_tensor_memory else ():
        yield op, f"{target} has no wgmma: accumulate in tensor memory"
    for op in () if target.has_tensor_memory else kernel.of(*TENSOR_OPS):
        yield op, f"{target} has no tensor memory"


def tensor_memory_is_freed(kernel: Kernel) -> Iterator[Problem]:
    """Taken once, in front of the partitions, and freed once, behind them, with all threads met and
    fenced: these stand on every path.
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


def columns_are_allocated(kernel: Kernel) -> Iterator[Problem]:
    taken: list[tuple[int, int]] = []
    for op in kernel.of(ops.Tcgen05Alloc, ops.TmemColumns):
        if isinstance(op, ops.Tcgen05Alloc):
            num = op.result.type_as(t.TensorMemory).columns
            if not LEAST_ALLOCATED <= num <= COLUMNS or num & (num - 1):
                yield op, f"{num} columns: not a power of two from {LEAST_ALLOCATED} to {COLUMNS}"
            if op.offset >= 0 and op.offset % ADDRESS_BYTES:
                yield op, f"offset {op.offset} is not a multiple of {ADDRESS_BYTES} bytes"
        else:
            held, kind = op.memory.type_as(t.TensorMemory), op.result.type_as(t.Columns)
            end = op.first + kind.columns * kind.num
            if end > held.columns:
                yield op, f"ends at column {end}; {held.columns} columns are allocated"
            if any(op.first < stop and start < end for start, stop in taken):
                yield op, "overlaps other columns"
            taken.append((op.first, end))


def products_fit(kernel: Kernel) -> Iterator[Problem]:
    """Every field of the descriptors: types, shape, depth, order of operands and columns."""
    made = kernel.definers
    for op in kernel.of(ops.Tcgen05Mma):
        a, b = (t.DTYPES.get(name) for name in op.dtypes)
        taken = are_scaled if op.scales is not None else sum_of
        total = taken(a, b) if a and b else None
        if a is None or total is None:
            yield op, f"tcgen05.mma cannot multiply {' and '.join(op.dtypes)}"
            continue
        if a.is_integer and not kernel.target.multiplies_integers:
            yield op, f"{kernel.target} cannot multiply {a}"
        fault = shape_fault(op.rows, op.columns, a, op.cta_group) if op.scales is None else ""
        if fault:
            yield op, fault
        if op.k < k_step(a) or op.k % k_step(a):
            yield op, f"k={op.k}: tcgen05.mma of {a} needs a multiple of {k_step(a)}"
        if not (op.a_k_major and op.b_k_major) and not may_be_mn_major(a):
            yield op, f"an operand of {a} must be K-major"
        yield from _within(op, op.sums, op.column, op.columns)
        own = op.columns // op.cta_group
        sides = ((op.a, op.a_k_major, op.rows), (op.b, op.b_k_major, own))
        for (value, k_major, extent), dtype in zip(sides, op.dtypes, strict=True):
            held = made.get(value)
            if value is op.a and isinstance(value.type, t.Columns):
                yield from _operand_in_columns(op, a)
            elif not isinstance(value.type, t.MatrixDescriptor):
                yield op, f"{value} is not an smem descriptor"
            elif isinstance(held, SmemDescriptor):
                along, deep = held.rows, held.columns
                along, deep = (along, deep) if held.k_major else (deep, along)
                if (held.dtype, held.k_major) != (dtype, k_major):
                    yield op, f"{value} is {held.dtype} with k_major={held.k_major}, unlike the MMA"
                if extent > along or held.first + op.k > deep:
                    yield op, f"{extent} x {op.k} elements exceed a tile of {along} x {deep}"


def _operand_in_columns(op: ops.Tcgen05Mma, dtype: t.DType) -> Iterator[Problem]:
    yield from _within(op, op.a, op.a_column, op.a_columns)
    if op.a_state is None:
        yield op, f"a_state must name the item of {op.a}"
    if dtype.bits not in STORED_BITS or not op.a_k_major:
        yield op, f"an operand in tensor memory must be K-major, of 16 or 32 bits, not {dtype}"
    if op.cta_group > 1 or op.scales is not None:
        yield op, "an MMA of a CTA pair or with scale factors cannot read operands in TMEM"


def _is_stored(kind: t.Fragment) -> bool:
    whole = kind.rows == 64 and kind.lanes == t.ACCUMULATOR and not kind.columns % 8
    return whole and kind.dtype.bits in STORED_BITS


def _rows(kernel: Kernel) -> dict[Value, set[int]]:
    """M extents of the MMAs that access each TMEM buffer."""
    rows = dict[Value, set[int]]()
    for op in kernel.of(ops.Tcgen05Mma):
        for value in (op.sums, op.a):
            rows.setdefault(value, set()).add(op.rows)
    return rows


def stores_fit(kernel: Kernel) -> Iterator[Problem]:
    """Of operands, or of sums that products go on with, in the lanes that these read."""
    rows, bits_of = _rows(kernel), dict[Value, int]()
    for op in kernel.of(ops.Tcgen05Mma):
        bits_of |= {op.sums: CELL_BITS, op.a: t.DTYPES[op.dtype].bits}
    for op in kernel.of(ops.Tcgen05St):
        kind = op.value.type
        if not isinstance(kind, t.Fragment) or not _is_stored(kind):
            yield op, f"a store needs 64 rows, columns in steps of 8, 16 or 32 bits, not {kind}"
            continue
        yield from _within(op, op.columns, op.column, op.width)
        bits = bits_of.get(op.columns)
        if not bits:
            yield op, f"no MMA reads {op.columns}"
        elif bits != kind.dtype.bits:
            yield op, f"MMAs read elements of {bits} bits here, not {kind.dtype}"
        if op.half and rows.get(op.columns) == {64}:
            yield op, HALF


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


def loads_fit(kernel: Kernel) -> Iterator[Problem]:
    """Of lanes that products write, into registers that are waited for."""
    rows = _rows(kernel)
    for op in kernel.of(ops.Tcgen05Ld):
        kind = op.result.type
        if not isinstance(kind, t.Accumulator) or kind.rows != 64 or kind.columns % 8:
            yield op, f"a load needs 64 rows and a multiple of 8 columns, not {kind}"
            continue
        if kind.dtype.bits != 32:
            yield op, f"cells of tensor memory have 32 bits, not {kind.dtype}"
        yield from _within(op, op.sums, op.column, kind.columns)
        if op.half and rows.get(op.sums) == {64}:
            yield op, HALF
    for op in kernel.of(ops.Tcgen05WaitLd):
        for load, value in zip(op.loads, op.result, strict=False):
            kind = load.type_as(t.Accumulator)
            rest = kind.dtype, kind.rows, kind.columns
            if value.type != t.Fragment(*rest):
                yield op, f"tcgen05_wait_ld of {load} cannot give {value.type}"
        if len(op.loads) != len(op.result):
            yield op, f"{len(op.loads)} loads and {len(op.result)} results differ in number"


def warpgroups_have_columns_of_their_own(kernel: Kernel) -> Iterator[Problem]:
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
    """In the region that they stand in: loops and branches hand on fragments."""
    loaded = {op.result: op for op in kernel.of(ops.Tcgen05Ld)}
    waits = {v for op in kernel.of(ops.Tcgen05WaitLd) for v in op.loads}
    for value, op in loaded.items():
        if value not in waits:
            yield op, f"no tcgen05_wait_ld waits for {value}"
    for op in kernel.of(ops.Tcgen05WaitLd):
        for value in op.loads:
            if value not in loaded:
                yield op, f"{value} is not the result of a tcgen05_ld"


def products_have_a_thread_of_their_own(kernel: Kernel) -> Iterator[Problem]:
    """Products of two threads are in no order; and who reads sums is not one thread."""
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
    """All that the instructions of a kernel say of a `cta_group` is the same, and two CTAs that
    are neighbours in a cluster are there for it.
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


def _within(op: Op, items: Value, column: int, columns: int) -> Iterator[Problem]:
    kind = items.type
    if not isinstance(kind, t.Columns):
        yield op, f"{items} is not a range of TMEM columns"
    elif column < 0 or column + columns > kind.columns:
        yield op, f"columns {column} to {column + columns} exceed an item of {kind.columns} columns"
