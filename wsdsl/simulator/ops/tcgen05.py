"""Ops on tensor memory: it is allocated, products write it, warps read their lanes of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np

from wsdsl.ir import ops
from wsdsl.ir.hardware.block_scale_factors import (
    TILE_COLUMNS,
    are_scaled,
    scale_columns,
    word_columns,
)
from wsdsl.ir.hardware.scale_factor_atoms import BYTES, ROWS
from wsdsl.ir.hardware.tcgen05_shapes import LANES, WARP_LANES
from wsdsl.ir.hardware.wgmma_shapes import k_step, sum_of
from wsdsl.ir.op import Op, Value
from wsdsl.ir.types import DTYPES, Accumulator, Columns, DType
from wsdsl.ir.types import TensorMemory as TensorMemoryType
from wsdsl.record import record
from wsdsl.simulator.cta import Cta
from wsdsl.simulator.ops.wgmma import elements_of, multiplicand, operand_in_shared
from wsdsl.simulator.reference.arithmetic import Array, numpy_dtype
from wsdsl.simulator.state import tmem_cells as tm
from wsdsl.simulator.state.smem_bytes import Region, span
from wsdsl.simulator.state.tmem_scale_factors import scaled_operands, word_cells, words_in_shared
from wsdsl.simulator.warpgroup import UNDEFINED, State, Warpgroup, destinations


@record
class Items:
    """`num` items of `columns` columns from `first` on."""

    label: str
    first: int
    columns: int
    num: int


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
            access = tm.Untouched(wg.told, op)
            whole = memory, tm.cells(slice(0, memory.columns)), access, wg.everyone
            wg.begin(op, f"it frees columns{cta.suffix}", "write", *whole, asynchronous=False)
            memory.freed = True
    if wg.cta.tensor_memory is None:
        wg.fail(op, "tensor memory is not allocated, or freed already")
    wg.cta.tensor_memory = None


def _memory(wg: Warpgroup, op: Op, cta: Cta | None = None) -> tm.TensorMemory:
    memory = (cta or wg.cta).tensor_memory
    if memory is None or memory.freed:
        wg.fail(op, "tensor memory is not allocated, or freed already")
    return memory


def tmem_columns(wg: Warpgroup, op: ops.TmemColumns) -> None:
    kind, memory = op.result.type_as(Columns), _memory(wg, op)
    if op.first + kind.columns * kind.num > memory.columns:
        wg.outside(op, f"{kind.num} items of {kind.columns} columns from column {op.first} on")
    wg.values[op.result.name] = Items(op.label, op.first, kind.columns, kind.num)


def _first(wg: Warpgroup, op: Op, sums: Value, state: Value, column: int, columns: int) -> int:
    """The first column of a part of an item."""
    items: Items = wg.values[sums.name]
    held: State = wg.values[state.name]
    if not 0 <= held.stage < items.num:
        wg.outside(op, f"item {held.stage} of `{items.label}`, which has {items.num}")
    if column + columns > items.columns:
        wg.outside(op, f"columns {column} to {column + columns} of an item of {items.columns}")
    return items.first + held.stage * items.columns + column


def tcgen05_mma(wg: Warpgroup, op: ops.Tcgen05Mma) -> None:
    """In each CTA of a pair, which both have a part of the right operand."""
    ctas = wg.pair(op, op.cta_group)
    dtype, b_dtype = (DTYPES[name] for name in op.dtypes)
    taken = sum_of if op.scales is None else are_scaled
    total, step = taken(dtype, b_dtype), k_step(dtype)
    if total is None or op.k % step:
        wg.fail(op, f"tcgen05.mma does not support k={op.k} of {dtype} and {b_dtype} (step {step})")
    accumulate, number = bool(wg.get(op.accumulate, op)), wg.tensor_pipe.count
    read = tm.PipeAccess(wg.told, op, wg.tensor_pipe, number)
    columns, k_major = op.columns // op.cta_group, op.b_k_major
    parts = [operand_in_shared(wg, op, read, b_dtype, op.b, columns, k_major, c) for c in ctas]
    jobs = list[tm.CellProduct]()
    for cta in ctas:
        memory = _memory(wg, op, cta)
        sums = _begin_sums(wg, op, cta, memory, accumulate)
        if isinstance(op.a.type, Columns):
            a = _operand_in_columns(wg, op, memory, dtype)
        else:
            a = operand_in_shared(wg, op, read, dtype, op.a, op.rows, op.a_k_major, cta)
        b = parts[0] if len(parts) == 1 else lambda: np.concatenate([fetch() for fetch in parts])
        if op.scales is not None:
            own = tm.PipeAccess(wg.told, op, wg.tensor_pipe, number, in_order=True)
            a, b = scaled_operands(wg, op, memory, own, (a, b))
        jobs.append(tm.CellProduct(op, memory, sums, (a, b), accumulate, step, numpy_dtype(total)))
    for job in jobs:
        _issue(wg, op, job)


def _operand_in_columns(
    wg: Warpgroup, op: ops.Tcgen05Mma, memory: tm.TensorMemory, dtype: DType
) -> Callable[[], Array]:
    """What its rows have there when the product runs."""
    assert op.a_state is not None
    first, pipe = _first(wg, op, op.a, op.a_state, op.a_column, op.a_columns), wg.tensor_pipe
    region = _rows(first, op.a_columns, op.rows)
    what = f"it reads columns {first} to {first + op.a_columns}"
    if not memory.written[region.index].all():
        wg.fail(op, f"{what}, which no op has written", kind="uninitialized")
    read = tm.PipeAccess(wg.told, op, pipe, pipe.count, in_order=True)
    where = memory, region, read, pipe.thread, "operand"
    wg.begin(op, what, "read", *where, asynchronous=False)

    def fetch() -> Array:
        held = np.ascontiguousarray(memory.read(region))
        return multiplicand(elements_of(held.view(np.uint8), dtype), dtype)

    return fetch


def _begin_sums(
    wg: Warpgroup, op: ops.Tcgen05Mma, cta: Cta, memory: tm.TensorMemory, accumulate: bool
) -> Region:
    """What a product writes there."""
    first = _first(wg, op, op.sums, op.state, op.column, op.columns)
    region, pipe = _rows(first, op.columns, op.rows), wg.tensor_pipe
    if accumulate and not memory.written[region.index].all():
        wg.fail(op, "no op has written the accumulator", kind="uninitialized")
    write = tm.PipeAccess(wg.told, op, pipe, pipe.count, in_order=True)
    what = f"it writes columns {first} to {first + op.columns}{cta.suffix}"
    wg.begin(op, what, "write", memory, region, write, pipe.thread, asynchronous=False)
    if not accumulate:
        memory.cells[region.index] = 0xFFFFFFFF
    memory.written[region.index] = True
    return region


def _rows(first: int, columns: int, rows: int) -> Region:
    """Return the cells of the rows of a product; those of 64 rows lie in half of the lanes."""
    held = slice(first, first + columns)
    return tm.cells(held, (tm.lanes_of(rows), held), (0, 1) if rows == LANES else (0,))


def tcgen05_cp(wg: Warpgroup, op: ops.Tcgen05Cp) -> None:
    """An atom at a time, in each CTA of a pair."""
    pipe, count = wg.tensor_pipe, op.rows // ROWS
    end, number = scale_columns(op.rows, op.words), pipe.count
    first = _first(wg, op, op.scales, op.state, op.column, end)
    shared, state = wg.values[op.shared.name], wg.values[op.shared_state.name]
    start = wg.item(op, shared, state.stage, op.offset, BYTES * count * op.words)
    stop, reader = start + BYTES * count * op.words, (wg.cta.index, wg.index, "product")
    for cta in wg.pair(op, op.cta_group):
        memory = _memory(wg, op, cta)
        read = tm.PipeAccess(wg.told, op, pipe, number)
        what = f"it reads item {state.stage} of `{shared.label}`{cta.suffix}"
        atoms = span(start, stop - start)
        wg.begin(op, what, "read", cta.memory, atoms, read, wg.actors, reader)
        write = tm.PipeAccess(wg.told, op, pipe, number, in_order=True)
        what = f"it writes columns {first} to {first + end}{cta.suffix}"
        region = tm.cells(slice(first, first + end))
        wg.begin(op, what, "write", memory, region, write, pipe.thread, asynchronous=False)
        memory.written[region.index] = True
        for word, atom in product(range(op.words), range(count)):
            place = start + BYTES * (atom * op.words + word)
            column = first + scale_columns(op.rows, word) + TILE_COLUMNS * atom
            lines = partial(cta.memory.read, span(place, BYTES))
            _issue(wg, op, tm.CellCopy(op, memory, lines, tm.cells(slice(column, column + 4))))


def tcgen05_commit(wg: Warpgroup, op: ops.Tcgen05Commit) -> None:
    ctas, state = destinations(wg, op, op.multicast), wg.values[op.state.name]
    on = [wg.barrier(op, op.barriers, state, cta) for cta in ctas]
    remote = [barrier for barrier, cta in zip(on, ctas, strict=True) if cta is not wg.cta]
    # What the thread has seen is over when it arrives.
    known = wg.cta.clocks.seen[wg.one].max(axis=0)
    pipe = wg.tensor_pipe
    arrive = partial(wg.arrive, op, threads=wg.one, known=known)
    commit = tm.Commit(op, pipe.count, on, arrive, wg.told, wg.one.start, remote)
    pipe.commits.append(commit)
    _issue(wg, op, commit)


def _issue(wg: Warpgroup, op: Op, job: tm.Job) -> None:
    pipe = wg.tensor_pipe
    pipe.count += 1
    if not pipe.queue:
        wg.cta.residents.start(pipe, op, wg.cta)
    pipe.queue.append(job)


def tcgen05_ld(wg: Warpgroup, op: ops.Tcgen05Ld) -> None:
    memory, kind = _memory(wg, op), op.result.type_as(Accumulator)
    first = _first(wg, op, op.sums, op.state, op.column + wg.rank * op.apart, kind.columns)
    region, access = _half(first, kind.columns, op.half), tm.CellAccess(wg.told, op, wg.everyone)
    what, reader = f"it reads columns {first} to {first + kind.columns}", (wg.index, op.half)
    wg.begin(op, what, "read", memory, region, access, wg.everyone, reader, asynchronous=False)
    wg.cell_accesses.append(access)
    held = memory.read(region).view(numpy_dtype(kind.dtype))
    wg.values[op.result.name] = held if memory.written[region.index].all() else UNDEFINED


def _half(first: int, columns: int, half: int) -> Region:
    """Return the cells that the warps of a warpgroup load or store at a time."""
    lanes = [WARP_LANES * w + 16 * half + r for w in range(4) for r in range(16)]
    held = slice(first, first + columns)
    return tm.cells(held, (lanes, held), (half,))


def tcgen05_st(wg: Warpgroup, op: ops.Tcgen05St) -> None:
    """Each warp writes lanes that are its own."""
    memory = _memory(wg, op)
    first = _first(wg, op, op.columns, op.state, op.column + wg.rank * op.apart, op.width)
    _store(wg, op, memory, _half(first, op.width, op.half), (first, op.width), wg.get(op.value, op))


def _store(
    wg: Warpgroup,
    op: Op,
    memory: tm.TensorMemory,
    region: Region,
    where: tuple[int, int],
    held: Array,
) -> None:
    """`where`: the first column, and how many."""
    access = tm.CellAccess(wg.told, op, wg.everyone, "tcgen05_wait_st")
    what = f"it writes columns {where[0]} to {sum(where)}"
    wg.begin(op, what, "write", memory, region, access, wg.everyone, asynchronous=False)
    wg.cell_accesses.append(access)
    memory.write(region, held)
    memory.written[region.index] = True


def tcgen05_wait_ld(wg: Warpgroup, op: ops.Tcgen05WaitLd) -> None:
    _wait(wg, op, "tcgen05_wait_ld")
    for value, load in zip(op.result, op.loads, strict=True):
        wg.values[value.name] = wg.values[load.name]


def tcgen05_wait_st(wg: Warpgroup, op: ops.Tcgen05WaitSt) -> None:
    _wait(wg, op, "tcgen05_wait_st")


def _wait(wg: Warpgroup, op: Op, wait: str) -> None:
    wg.effect(op, "wait", "tensor", wg.everyone)
    for access in wg.cell_accesses:
        access.waited |= access.wait == wait


def store_scale_factors(wg: Warpgroup, op: ops.StoreScaleFactors) -> None:
    memory, columns = _memory(wg, op), word_columns(op.rows, op.words)
    first = _first(wg, op, op.scales, op.state, op.column, columns[-1].stop)
    words = words_in_shared(wg, op)
    for own, word in zip(columns, range(op.words), strict=True):
        start = first + own.start
        _store(wg, op, memory, word_cells(start, op.rows), (start, len(own)), words[:, word])


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
