"""Rules of SCHEDULED kernels about tensor memory: what is allocated, who may reach what, and what
the fields of a product may be. The assembler looks at none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from wsdsl.ir import tensor_ops as tm
from wsdsl.ir.barrier_ops import SyncCluster, SyncCta
from wsdsl.ir.block_scales import are_scaled
from wsdsl.ir.fragment_ops import MatrixOperand, Wgmma
from wsdsl.ir.memory_ops import TmaLoad
from wsdsl.ir.op import Kernel, Op, Value, op_name, ops_of
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.protocol_rules import Problem, cluster_of
from wsdsl.ir.scale_rules import RULES as SCALE_RULES
from wsdsl.ir.tcgen05 import CELL_BITS, COLUMNS, LEAST_ALLOCATED, shape_fault
from wsdsl.ir.types import (
    ACCUMULATOR,
    DTYPES,
    Accumulator,
    Columns,
    DType,
    Fragment,
    SmemDescriptor,
    TensorMemory,
)
from wsdsl.ir.walk import walk
from wsdsl.ir.wgmma import k_step, may_be_mn_major, sum_of

TENSOR_OPS = ops_of(tm)
ADDRESS_BYTES = 4
STORED_BITS = (16, 32)
"""Of elements that threads write to tensor memory."""


def products_are_of_the_card(kernel: Kernel) -> Iterator[Problem]:
    """wgmma is sm_90a's alone, tensor memory that of what followed."""
    target = kernel.target
    for op in kernel.of(Wgmma) if target.has_tensor_memory else ():
        yield op, f"{target} has no wgmma: products are summed in tensor memory"
    for op in () if target.has_tensor_memory else kernel.of(*TENSOR_OPS):
        yield op, f"{target} has no tensor memory"


def tensor_memory_is_freed(kernel: Kernel) -> Iterator[Problem]:
    """Taken once, in front of the partitions, and freed once, behind them, with all threads met and
    fenced: these stand on every path.
    """
    own = kernel.of(*TENSOR_OPS)
    taken = kernel.of(tm.AllocateTensorMemory)
    freed = kernel.of(tm.FreeTensorMemory)
    if not own:
        return
    if len(taken) != 1 or len(freed) != 1:
        yield (taken or own)[0], "tensor memory is allocated once, and freed once"
        return
    body = [*kernel.body]
    if taken[0] not in body or freed[0] not in body:
        yield taken[0], "tensor memory is allocated and freed outside of any region"
        return
    first, last = body.index(taken[0]), body.index(freed[0])
    parts = [i for i, op in enumerate(body) if isinstance(op, (Partition, tm.TensorColumns))]
    if not all(first < i < last for i in parts):
        yield taken[0], "it is allocated in front of the partitions, and freed behind them"
        return
    begin, end = min(parts, default=last), max(parts, default=first)
    kind = SyncCluster if taken[0].cta_group > 1 else SyncCta
    told = f"tensor_fence, {op_name(kind)}, tensor_fence(after)"
    if not _meets(body[first + 1 : begin], kind):
        yield taken[0], f"all threads meet behind it: {told}"
    if not _meets(body[end + 1 : last], kind):
        yield freed[0], f"all threads meet before: {told}"
    if kind is SyncCluster and not any(isinstance(op, SyncCluster) for op in body[:first]):
        yield taken[0], "a pair allocates when both CTAs run: a sync_cluster stands in front"
    if freed[0].memory != taken[0].result:
        yield freed[0], f"it frees {taken[0].result}"


def _meets(ops: list[Op], kind: type[Op]) -> bool:
    wanted: list[Callable[[Op], bool]] = [
        lambda op: isinstance(op, tm.TensorFence) and not op.after,
        lambda op: isinstance(op, kind) and not getattr(op, "relaxed", False),
        lambda op: isinstance(op, tm.TensorFence) and op.after,
    ]
    for op in ops:
        if wanted and wanted[0](op):
            wanted.pop(0)
    return not wanted


def columns_are_allocated(kernel: Kernel) -> Iterator[Problem]:
    taken: list[tuple[int, int]] = []
    for op in kernel.of(tm.AllocateTensorMemory, tm.TensorColumns):
        if isinstance(op, tm.AllocateTensorMemory):
            kind = op.result.type
            num = kind.columns if isinstance(kind, TensorMemory) else 0
            if not LEAST_ALLOCATED <= num <= COLUMNS or num & (num - 1):
                yield op, f"a power of two from {LEAST_ALLOCATED} to {COLUMNS} is allocated"
            if op.offset >= 0 and op.offset % ADDRESS_BYTES:
                yield op, "the address is a word"
        else:
            held, kind = op.memory.type, op.result.type
            if not isinstance(kind, Columns) or not isinstance(held, TensorMemory):
                yield op, "it is of columns of tensor memory"
                continue
            end = op.first + kind.columns * kind.num
            if end > held.columns:
                yield op, f"ends at column {end}, {held.columns} are allocated"
            if any(op.first < stop and start < end for start, stop in taken):
                yield op, "overlaps other columns"
            taken.append((op.first, end))


def products_fit(kernel: Kernel) -> Iterator[Problem]:
    """Every field of the descriptors: types, shape, depth, order of operands and columns."""
    made = kernel.definers
    for op in kernel.of(tm.TensorProduct):
        a, b = (DTYPES.get(name) for name in op.dtypes)
        taken = are_scaled if op.scales is not None else sum_of
        total = taken(a, b) if a and b else None
        if a is None or total is None:
            yield op, f"tcgen05.mma does not multiply {' and '.join(op.dtypes)}"
            continue
        if a.is_integer and not kernel.target.multiplies_integers:
            yield op, f"{kernel.target} multiplies no {a}"
        fault = shape_fault(op.rows, op.columns, a, op.cta_group) if op.scales is None else ""
        if fault:
            yield op, fault
        if op.k < k_step(a) or op.k % k_step(a):
            yield op, f"of {a} tcgen05.mma takes {k_step(a)} of K at a time"
        if not (op.a_k_major and op.b_k_major) and not may_be_mn_major(a):
            yield op, f"an operand of {a} is K-major"
        yield from _within(op, op.sums, op.column, op.columns)
        own = op.columns // op.cta_group
        sides = ((op.a, op.a_k_major, op.rows), (op.b, op.b_k_major, own))
        for (value, k_major, extent), dtype in zip(sides, op.dtypes, strict=True):
            held = made.get(value)
            if value is op.a and isinstance(value.type, Columns):
                yield from _operand_in_columns(op, a)
            elif not isinstance(value.type, SmemDescriptor):
                yield op, f"{value} is no smem descriptor"
            elif isinstance(held, MatrixOperand):
                along, deep = held.rows, held.columns
                along, deep = (along, deep) if held.k_major else (deep, along)
                if (held.dtype, held.k_major) != (dtype, k_major):
                    yield op, f"{value} is {held.dtype} with k_major={held.k_major}"
                if extent > along or held.first + op.k > deep:
                    yield op, f"{extent} x {op.k} elements of a tile of {along} x {deep}"


def _operand_in_columns(op: tm.TensorProduct, dtype: DType) -> Iterator[Problem]:
    yield from _within(op, op.a, op.a_column, op.a_columns)
    if op.a_state is None:
        yield op, f"which item of {op.a} it reads"
    if dtype.bits not in STORED_BITS or not op.a_k_major:
        yield op, f"K-major operands of 16 or 32 bits lie in tensor memory, no {dtype}"
    if op.cta_group > 1 or op.scales is not None:
        yield op, "a pair of CTAs, or products with scales, read no operand in tensor memory"


def _is_stored(kind: Fragment) -> bool:
    whole = kind.rows == 64 and kind.lanes == ACCUMULATOR and not kind.columns % 8
    return whole and kind.dtype.bits in STORED_BITS


def _rows(kernel: Kernel) -> dict[Value, set[int]]:
    """M extents of the MMAs that access each TMEM buffer."""
    rows = dict[Value, set[int]]()
    for op in kernel.of(tm.TensorProduct):
        for value in (op.sums, op.a):
            rows.setdefault(value, set()).add(op.rows)
    return rows


def stores_fit(kernel: Kernel) -> Iterator[Problem]:
    """Of operands, or of sums that products go on with, in the lanes that these read."""
    rows, bits_of = _rows(kernel), dict[Value, int]()
    for op in kernel.of(tm.TensorProduct):
        bits_of |= {op.sums: CELL_BITS, op.a: DTYPES[op.dtype].bits}
    for op in kernel.of(tm.TensorStore):
        kind = op.value.type
        if not isinstance(kind, Fragment) or not _is_stored(kind):
            yield op, f"64 rows and a multiple of 8 columns of 16 or 32 bits are stored, no {kind}"
            continue
        yield from _within(op, op.columns, op.column, op.width)
        bits = bits_of.get(op.columns)
        if not bits:
            yield op, f"no product reads {op.columns}"
        elif bits != kind.dtype.bits:
            yield op, f"products read elements of {bits} bits there, not {kind.dtype}"
        if op.half and rows.get(op.columns) == {64}:
            yield op, "products of 64 rows have no second half"


def stores_are_whole(kernel: Kernel) -> Iterator[Problem]:
    """Of both halves of the lanes, where products read all of them."""
    rows = _rows(kernel)
    stored = dict[tuple[Value, Value], list[tm.TensorStore]]()
    for op in kernel.of(tm.TensorStore):
        stored.setdefault((op.columns, op.state), []).append(op)
    for (columns, _), own in stored.items():
        halves = [{(op.column, op.width) for op in own if op.half == half} for half in (0, 1)]
        if rows.get(columns) == {128} and halves[0] != halves[1]:
            yield own[0], "products read 128 rows there, and both halves of them are not stored"


def loads_fit(kernel: Kernel) -> Iterator[Problem]:
    """Of lanes that products write, into registers that are waited for."""
    rows = _rows(kernel)
    for op in kernel.of(tm.TensorLoad):
        kind = op.result.type
        if not isinstance(kind, Accumulator) or kind.rows != 64 or kind.columns % 8:
            yield op, f"64 rows and a multiple of 8 columns are read, no {kind}"
            continue
        if kind.dtype.bits != 32:
            yield op, f"cells are of 32 bits, not {kind.dtype}"
        yield from _within(op, op.sums, op.column, kind.columns)
        if op.half and rows.get(op.sums) == {64}:
            yield op, "products of 64 rows have no second half"
    for op in kernel.of(tm.TensorWait):
        for load, value in zip(op.loads, op.result, strict=False):
            kind = load.type
            whole = isinstance(kind, Accumulator) and Fragment(kind.dtype, kind.rows, kind.columns)
            if not whole or value.type != whole:
                yield op, f"of {load} it makes no {value.type}"
        if len(op.loads) != len(op.result):
            yield op, "each load comes back as a fragment"


def warpgroups_have_columns_of_their_own(kernel: Kernel) -> Iterator[Problem]:
    """Those of a partition that run the same loads and stores."""
    for p in kernel.of(Partition) if kernel.of(tm.TensorLoad, tm.TensorStore) else ():
        for op in walk(p.body):
            if not isinstance(op, (tm.TensorLoad, tm.TensorStore)):
                continue
            kind = (op.sums if isinstance(op, tm.TensorLoad) else op.columns).type
            last = op.column + (p.num_warpgroups - 1) * op.apart + op.width
            if p.num_warpgroups > 1 and op.apart < op.width:
                yield op, f"{p.num_warpgroups} warpgroups reach the same columns"
            if isinstance(kind, Columns) and last > kind.columns:
                yield op, f"columns up to {last} of an item of {kind.columns}"


def loads_are_waited_for(kernel: Kernel) -> Iterator[Problem]:
    """In the region that they stand in: loops and branches hand on fragments."""
    loaded = {op.result: op for op in kernel.of(tm.TensorLoad)}
    waits = {v for op in kernel.of(tm.TensorWait) for v in op.loads}
    for value, op in loaded.items():
        if value not in waits:
            yield op, f"no tensor_wait has {value}"
    for op in kernel.of(tm.TensorWait):
        for value in op.loads:
            if value not in loaded:
                yield op, f"{value} is not what a tensor_load reads"


def products_have_a_thread_of_their_own(kernel: Kernel) -> Iterator[Problem]:
    """Products of two threads are in no order; and who reads sums is not one thread."""
    if not kernel.of(tm.TensorProduct):
        return
    parts = [op for op in kernel.body if isinstance(op, Partition)]
    makers = [p for p in parts if any(isinstance(o, tm.TensorProduct) for o in walk(p.body))]
    for p in makers[1:]:
        yield p, "one partition multiplies on tensor memory"
    for p in makers:
        if any(isinstance(o, (tm.TensorLoad, tm.TensorStore)) for o in walk(p.body)):
            yield p, "who multiplies reads and stores no sums: another partition does"
    inside = {id(o) for p in parts for o in walk(p.body)}
    for op in kernel.of(tm.TensorProduct):
        if id(op) not in inside:
            yield op, "products stand in a partition"


def pairs_agree(kernel: Kernel) -> Iterator[Problem]:
    """All that the instructions of a kernel say of a `cta_group` is the same, and two CTAs that
    are neighbours in a cluster are there for it.
    """
    said = kernel.having("cta_group")
    of = [op for op in said if getattr(op, "cta_group", 1) != 1]
    loads = [op for op in kernel.of(TmaLoad) if op.cta is not None]
    for op in of:
        if getattr(op, "cta_group", 1) != 2 or cluster_of(kernel) % 2:
            yield op, "two CTAs of a cluster are a pair: cta_group is 1 or 2"
    for op in said if of else ():
        if getattr(op, "cta_group", 2) != 2:
            yield op, "all ops of a kernel have one cta_group, and others have 2"
    for op in loads:
        if not of or op.multicast is not None:
            told = "is for a pair of CTAs" if not of else "and `multicast` are not for one copy"
            yield op, f"`cta` {told}"


def _within(op: Op, items: Value, column: int, columns: int) -> Iterator[Problem]:
    kind = items.type
    if not isinstance(kind, Columns):
        yield op, f"{items} are no columns"
    elif column < 0 or column + columns > kind.columns:
        yield op, f"columns {column} to {column + columns} of an item of {kind.columns}"


RULES: tuple[Callable[[Kernel], Iterator[Problem]], ...] = (
    products_are_of_the_card,
    tensor_memory_is_freed,
    columns_are_allocated,
    products_fit,
    stores_fit,
    stores_are_whole,
    loads_fit,
    warpgroups_have_columns_of_their_own,
    loads_are_waited_for,
    products_have_a_thread_of_their_own,
    pairs_agree,
    *SCALE_RULES,
)
