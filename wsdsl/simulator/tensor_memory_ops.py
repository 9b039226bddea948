"""Ops on tensor memory: it is allocated, products write it, warps read their lanes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from wsdsl.ir import tensor_ops as t
from wsdsl.ir.block_scales import TILE_COLUMNS, are_scaled, scale_columns, word_columns
from wsdsl.ir.op import Op, Value
from wsdsl.ir.scale_atoms import BYTES, ROWS
from wsdsl.ir.tcgen05 import WARP_LANES
from wsdsl.ir.types import DTYPES, Accumulator, Columns
from wsdsl.ir.types import TensorMemory as TensorMemoryType
from wsdsl.ir.wgmma import k_step, sum_of
from wsdsl.simulator.arithmetic import numpy_dtype
from wsdsl.simulator.block_scales import scaled_operands, words_in_shared, write_words
from wsdsl.simulator.context import UNDEFINED, State, Steps, Warpgroup, destinations
from wsdsl.simulator.tensor_core_ops import operand_in_shared
from wsdsl.simulator.tensor_memory import (
    CellAccess,
    CellCopy,
    CellProduct,
    Commit,
    Job,
    PipeAccess,
    TensorMemory,
    lanes_of,
)


@dataclass(frozen=True)
class Items:
    """`num` items of `columns` columns from `first` on."""

    label: str
    first: int
    columns: int
    num: int


def allocate_tensor_memory(wg: Warpgroup, op: t.AllocateTensorMemory) -> None:
    """By the CTA's first warp."""
    assert isinstance(op.result.type, TensorMemoryType)
    if wg.index:
        return
    if wg.cta.tensor_memory is not None:
        wg.fail(op, "tensor memory is allocated twice")
    wg.cta.tensor_memory = TensorMemory(op.result.type.columns, wg.cta.clocks)


def free_tensor_memory(wg: Warpgroup, op: t.FreeTensorMemory) -> None:
    if wg.index:
        return
    memory = _memory(wg, op)
    access = CellAccess(wg.told, op, wg.everyone)
    conflict = memory.accesses.write(0, memory.columns, access, wg.everyone, False)
    wg.settle(op, "it frees columns", conflict)
    wg.cta.tensor_memory = None


def _memory(wg: Warpgroup, op: Op) -> TensorMemory:
    if wg.cta.tensor_memory is None:
        wg.fail(op, "tensor memory is not allocated, or freed already")
    return wg.cta.tensor_memory


def tensor_columns(wg: Warpgroup, op: t.TensorColumns) -> None:
    kind, memory = op.result.type, _memory(wg, op)
    assert isinstance(kind, Columns)
    if op.first + kind.columns * kind.num > memory.columns:
        wg.fail(op, f"{kind.num} items of {kind.columns} columns from {op.first} on")
    wg.values[op.result.name] = Items(op.label, op.first, kind.columns, kind.num)


def _first(wg: Warpgroup, op: Op, sums: Value, state: Value, column: int, columns: int) -> int:
    """The first column of a part of an item."""
    items: Items = wg.values[sums.name]
    held: State = wg.values[state.name]
    if not 0 <= held.stage < items.num:
        wg.fail(op, f"item {held.stage} of `{items.label}`, which has {items.num}")
    if column + columns > items.columns:
        wg.fail(op, f"columns {column} to {column + columns} of an item of {items.columns}")
    return items.first + held.stage * items.columns + column


def tensor_product(wg: Warpgroup, op: t.TensorProduct) -> None:
    memory, pipe = _memory(wg, op), wg.tensor_pipe
    first = _first(wg, op, op.sums, op.state, op.column, op.columns)
    dtype, b_dtype = (DTYPES[name] for name in op.dtypes)
    taken = sum_of if op.scales is None else are_scaled
    total, step = taken(dtype, b_dtype), k_step(dtype)
    if total is None or op.k % step:
        wg.fail(op, f"k = {op.k} of {dtype} and {b_dtype}: no multiple of {step}, or no product")
    columns = slice(first, first + op.columns)
    accumulate = bool(wg.get(op.accumulate, op))
    if accumulate and not memory.written[columns].all():
        wg.fail(op, "accumulates on columns that nothing has written")
    write = PipeAccess(wg.told, op, pipe, pipe.count, in_order=True)
    conflict = memory.accesses.write(columns.start, columns.stop, write, pipe.thread, False)
    wg.settle(op, f"it writes columns {columns.start} to {columns.stop}", conflict)
    read = PipeAccess(wg.told, op, pipe, pipe.count)
    a = operand_in_shared(wg, op, read, dtype, op.a, op.rows, op.a_k_major)
    b = operand_in_shared(wg, op, read, b_dtype, op.b, op.columns, op.b_k_major)
    if op.scales is not None:
        own = PipeAccess(wg.told, op, pipe, pipe.count, in_order=True)
        a, b = scaled_operands(wg, op, memory, own, (a, b))
    if not accumulate:
        memory.cells[lanes_of(op.rows), columns] = 0xFFFFFFFF
    memory.written[columns] = True
    kind = numpy_dtype(total)
    _issue(wg, op, CellProduct(op, memory, first, (a, b), accumulate, step, kind))


def tensor_copy(wg: Warpgroup, op: t.TensorCopy) -> None:
    """An atom at a time."""
    memory, pipe, count = _memory(wg, op), wg.tensor_pipe, op.rows // ROWS
    end = scale_columns(op.rows, op.words)
    first = _first(wg, op, op.scales, op.state, op.column, end)
    shared, state = wg.values[op.shared.name], wg.values[op.shared_state.name]
    start = wg.item(op, shared, state.stage, op.offset, BYTES * count * op.words)
    read = PipeAccess(wg.told, op, pipe, pipe.count)
    stop, reader = start + BYTES * count * op.words, (wg.index, "product")
    conflict = wg.cta.accesses.read(start, stop, read, wg.actors, reader)
    wg.settle(op, f"it reads item {state.stage} of `{shared.label}`", conflict)
    write = PipeAccess(wg.told, op, pipe, pipe.count, in_order=True)
    conflict = memory.accesses.write(first, first + end, write, pipe.thread, False)
    wg.settle(op, f"it writes columns {first} to {first + end}", conflict)
    memory.written[first : first + end] = True
    held = wg.cta.memory.bytes
    for word in range(op.words):
        for atom in range(count):
            place = start + BYTES * (atom * op.words + word)
            column = first + scale_columns(op.rows, word) + TILE_COLUMNS * atom
            lines = partial(held.__getitem__, slice(place, place + BYTES))
            _issue(wg, op, CellCopy(op, memory, lines, column))


def tensor_commit(wg: Warpgroup, op: t.TensorCommit) -> None:
    ctas, state = destinations(wg, op, op.multicast), wg.values[op.state.name]
    on = [wg.barrier(op, op.barriers, state, cta) for cta in ctas]
    remote = [barrier for barrier, cta in zip(on, ctas, strict=True) if cta is not wg.cta]
    # What the thread has seen is over when it arrives.
    known = wg.cta.clocks.seen[wg.one].max(axis=0)
    pipe, check = wg.tensor_pipe, lambda told: wg.check(op, told)
    commit = Commit(op, pipe.count, on, known, check, wg.told, wg.one.start, remote)
    pipe.commits.append(commit)
    _issue(wg, op, commit)


def _issue(wg: Warpgroup, op: Op, job: Job) -> None:
    pipe = wg.tensor_pipe
    pipe.count += 1
    if not pipe.queue:
        wg.cta.residents.start(pipe, op, wg.cta)
    pipe.queue.append(job)


def tensor_load(wg: Warpgroup, op: t.TensorLoad) -> None:
    memory, kind = _memory(wg, op), op.result.type
    assert isinstance(kind, Accumulator)
    first = _first(wg, op, op.sums, op.state, op.column, kind.columns)
    columns = slice(first, first + kind.columns)
    access = CellAccess(wg.told, op, wg.everyone)
    reader = (wg.index, op.half)
    conflict = memory.accesses.read(columns.start, columns.stop, access, wg.everyone, reader, False)
    wg.settle(op, f"it reads columns {columns.start} to {columns.stop}", conflict)
    wg.cell_accesses.append(access)
    lanes = [WARP_LANES * w + 16 * op.half + r for w in range(4) for r in range(16)]
    cells = memory.cells[lanes, columns].view(numpy_dtype(kind.dtype))
    wg.values[op.result.name] = cells if memory.written[columns].all() else UNDEFINED


def tensor_wait(wg: Warpgroup, op: t.TensorWait) -> None:
    _wait(wg, "tensor_wait")
    for value, load in zip(op.result, op.loads, strict=True):
        wg.values[value.name] = wg.values[load.name]


def tensor_store_wait(wg: Warpgroup, op: t.TensorStoreWait) -> None:
    _wait(wg, "tensor_store_wait")


def _wait(wg: Warpgroup, wait: str) -> None:
    for access in wg.cell_accesses:
        access.waited |= access.wait == wait


def store_scales(wg: Warpgroup, op: t.StoreScales) -> None:
    memory, columns = _memory(wg, op), word_columns(op.rows, op.words)
    first = _first(wg, op, op.scales, op.state, op.column, columns[-1].stop)
    words = words_in_shared(wg, op)
    for own, word in zip(columns, range(op.words), strict=True):
        start, stop = first + own.start, first + own.stop
        access = CellAccess(wg.told, op, wg.everyone, "tensor_store_wait")
        conflict = memory.accesses.write(start, stop, access, wg.everyone, False)
        wg.settle(op, f"it writes columns {start} to {stop}", conflict)
        wg.cell_accesses.append(access)
        write_words(memory, start, words[:, word])


def tensor_fence(wg: Warpgroup, op: t.TensorFence) -> None:
    memory, clocks = wg.cta.tensor_memory, wg.cta.clocks
    if op.after:
        if memory is not None:
            memory.fenced.catch_up(wg.actors)
        return
    clocks.tick(wg.actors)
    over = [access for access in wg.cell_accesses if access.waited]
    for access in over:
        access.epochs = clocks.own[wg.everyone].copy()
    wg.cell_accesses = [access for access in wg.cell_accesses if not access.waited]
    clocks.tick(wg.actors)


TENSOR_MEMORY: dict[type[Op], Callable[[Warpgroup, Any], Steps | None]] = {
    t.AllocateTensorMemory: allocate_tensor_memory,
    t.FreeTensorMemory: free_tensor_memory,
    t.TensorColumns: tensor_columns,
    t.TensorProduct: tensor_product,
    t.TensorCommit: tensor_commit,
    t.TensorLoad: tensor_load,
    t.StoreScales: store_scales,
    t.TensorCopy: tensor_copy,
    t.TensorStoreWait: tensor_store_wait,
    t.TensorWait: tensor_wait,
    t.TensorFence: tensor_fence,
}
