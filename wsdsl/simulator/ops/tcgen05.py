"""Tensor memory: allocation, loads, stores, fences and commits (tcgen05)."""

from functools import partial

from wsdsl.ir import ops
from wsdsl.ir.hardware.block_scale_factors import word_columns
from wsdsl.ir.hardware.tcgen05_shapes import WARP_LANES
from wsdsl.ir.op import Op, Value
from wsdsl.ir.types import Accumulator, Columns
from wsdsl.ir.types import TensorMemory as TensorMemoryType
from wsdsl.simulator.cta import Cta
from wsdsl.simulator.recorded_effects import Kind
from wsdsl.simulator.reference.arithmetic import Array, numpy_dtype
from wsdsl.simulator.state import tmem_cells as tm
from wsdsl.simulator.state.tmem_races import moves
from wsdsl.simulator.state.tmem_scale_factors import word_cells, words_in_shared
from wsdsl.simulator.warpgroup import UNDEFINED, State, Warpgroup, destinations


def tcgen05_alloc(wg: Warpgroup, op: ops.Tcgen05Alloc) -> None:
    """By the CTA's first warp."""
    if wg.index:
        return
    if wg.cta.tensor_memory is not None:
        wg.fail(op, "tensor memory is allocated twice")
    columns = op.result.type_as(TensorMemoryType).columns
    wg.cta.tensor_memory = tm.TensorMemory(columns, wg.cta.clocks, wg.cta.index)


def tcgen05_dealloc(wg: Warpgroup, op: ops.Tcgen05Dealloc) -> None:
    """Those of the other CTA of a pair with them."""
    if wg.index:
        return
    ctas, first = wg.cta.cluster.ctas, wg.cta.rank // 2 * 2
    for cta in ctas[first : first + 2] if op.cta_group > 1 else [wg.cta]:
        if (memory := cta.tensor_memory) is not None:
            moves(wg, op, "write", memory, (slice(None), slice(0, memory.columns)))
            memory.freed = True
    if wg.cta.tensor_memory is None:
        wg.fail(op, "tensor memory is not allocated, or freed already")
    wg.cta.tensor_memory = None


def memory_of(wg: Warpgroup, op: Op, cta: Cta | None = None) -> tm.TensorMemory:
    memory = (cta or wg.cta).tensor_memory
    if memory is None or memory.freed:
        wg.fail(op, "tensor memory is not allocated, or freed already")
    return memory


def tmem_columns(wg: Warpgroup, op: ops.TmemColumns) -> None:
    kind, memory = op.result.type_as(Columns), memory_of(wg, op)
    if op.first + kind.columns * kind.num > memory.columns:
        wg.outside(op, f"{kind.num} items of {kind.columns} columns from column {op.first} on")
    wg.values[op.result.name] = tm.ColumnItems(op.label, op.first, kind.columns, kind.num)


def first_column(
    wg: Warpgroup, op: Op, sums: Value, state: Value, column: int, columns: int
) -> int:
    """The first column of a part of an item."""
    items: tm.ColumnItems = wg.values[sums.name]
    held: State = wg.values[state.name]
    if not 0 <= held.stage < items.num:
        wg.outside(op, f"item {held.stage} of `{items.label}`, which has {items.num}")
    if column + columns > items.columns:
        wg.outside(op, f"columns {column} to {column + columns} of an item of {items.columns}")
    return items.first + held.stage * items.columns + column


def tcgen05_commit(wg: Warpgroup, op: ops.Tcgen05Commit) -> None:
    ctas, state = destinations(wg, op, op.multicast), wg.values[op.state.name]
    on = [wg.barrier(op, op.barriers, state, cta) for cta in ctas]
    remote = [barrier for barrier, cta in zip(on, ctas, strict=True) if cta is not wg.cta]
    # Accesses that the thread has seen are complete when it arrives.
    known = wg.cta.clocks.seen[wg.one].max(axis=0)
    pipe = wg.tensor_pipe
    arrive = partial(wg.arrive, op, threads=wg.one, known=known)
    commit = tm.Commit(op, pipe.count, on, arrive, wg.told, wg.one.start, remote)
    pipe.commits.append(commit)
    issue(wg, op, commit)


def issue(wg: Warpgroup, op: Op, job: tm.Job) -> None:
    pipe = wg.tensor_pipe
    pipe.count += 1
    if not pipe.queue:
        wg.cta.residents.start(pipe, op, wg.cta)
    pipe.queue.append(job)


def tcgen05_ld(wg: Warpgroup, op: ops.Tcgen05Ld) -> None:
    memory, kind = memory_of(wg, op), op.result.type_as(Accumulator)
    first = first_column(wg, op, op.sums, op.state, op.column + wg.rank * op.apart, kind.columns)
    cells = _half(first, kind.columns, op.half)
    held = memory.read(cells).view(numpy_dtype(kind.dtype))
    wg.values[op.result.name] = held if moves(wg, op, "read", memory, cells) else UNDEFINED


def _half(first: int, columns: int, half: int) -> tm.Cells:
    """Return the cells that the warps of a warpgroup load or store at a time."""
    lanes = [WARP_LANES * w + 16 * half + r for w in range(4) for r in range(16)]
    return lanes, slice(first, first + columns)


def tcgen05_st(wg: Warpgroup, op: ops.Tcgen05St) -> None:
    """Each warp writes lanes that are its own."""
    memory = memory_of(wg, op)
    first = first_column(wg, op, op.columns, op.state, op.column + wg.rank * op.apart, op.width)
    _store(wg, op, memory, _half(first, op.width, op.half), wg.get(op.value, op))


def _store(wg: Warpgroup, op: Op, memory: tm.TensorMemory, cells: tm.Cells, held: Array) -> None:
    moves(wg, op, "write", memory, cells)
    memory.write(cells, held)


def tcgen05_wait_ld(wg: Warpgroup, op: ops.Tcgen05WaitLd) -> None:
    _wait(wg, op, "read")
    for value, load in zip(op.result, op.loads, strict=True):
        wg.values[value.name] = wg.values[load.name]


def tcgen05_wait_st(wg: Warpgroup, op: ops.Tcgen05WaitSt) -> None:
    _wait(wg, op, "write")


def _wait(wg: Warpgroup, op: Op, kind: Kind) -> None:
    wg.effect(op, "wait", "tensor", wg.everyone)
    for access in wg.cell_accesses:
        access.waited |= access.kind == kind


def store_scale_factors(wg: Warpgroup, op: ops.StoreScaleFactors) -> None:
    memory, columns = memory_of(wg, op), word_columns(op.rows, op.words)
    first = first_column(wg, op, op.scales, op.state, op.column, columns[-1].stop)
    words = words_in_shared(wg, op)
    for own, word in zip(columns, range(op.words), strict=True):
        _store(wg, op, memory, word_cells(first + own.start, op.rows), words[:, word])


def tcgen05_fence(wg: Warpgroup, op: ops.Tcgen05Fence) -> None:
    clocks = wg.cta.clocks
    wg.effect(op, "fence", "tensor", wg.actors)
    if op.after:
        for cta in wg.cta.cluster.ctas:
            if cta.tensor_memory is not None:
                cta.tensor_memory.fenced.catch_up(wg.actors)
        return
    clocks.tick(wg.actors)
    for access in [access for access in wg.cell_accesses if access.waited]:
        access.epochs = clocks.own[wg.everyone].copy()
    wg.cell_accesses = [access for access in wg.cell_accesses if not access.waited]
    clocks.tick(wg.actors)
