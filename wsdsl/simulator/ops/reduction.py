"""Reductions of rows and columns, within a warp and by partials in SMEM."""

from typing import Any

import numpy as np

from wsdsl.ir import ops
from wsdsl.ir.types import DType, Fragment
from wsdsl.simulator.cta import Cta
from wsdsl.simulator.ops.cluster import SendInFlight
from wsdsl.simulator.ops.smem import read_by_warps, write_shared
from wsdsl.simulator.reference.arithmetic import Array, dtype_of, reduce, reduce_blocks, scan
from wsdsl.simulator.reference.fragment_arrays import finish
from wsdsl.simulator.state.smem_bytes import span
from wsdsl.simulator.warpgroup import SharedItems, State, Warpgroup


def store_partials(wg: Warpgroup, op: ops.StorePartials) -> None:
    """Part by part, as many words as there are rows; of one row, which several warps may have,
    once.
    """
    kind, value = op.x.as_fragment, np.asarray(wg.get(op.x, op))
    shared: SharedItems = wg.values[op.shared.name]
    lanes, part = kind.lanes, 0 if op.part is None else int(wg.get(op.part, op))
    if op.over_rows:
        _store_columns(wg, op, value, part)
        return
    # One column is what all warps have that share the row.
    parts = lanes.warp_of(np.arange(kind.columns)) if kind.columns > 1 else None
    rows, word = lanes.of_warp(kind.rows), _word(kind.dtype)
    part = part * lanes.warps + op.each * wg.rank
    for i in range(4):
        group, own = divmod(i, lanes.warps)
        if group and kind.rows == 1:
            continue
        first = group * rows
        held = value[first : first + rows]
        held = (held if parts is None else held[:, parts == own]).astype(word)
        made = np.asarray(reduce(op.fn, held, kind.dtype, 1)).astype(word)
        place = op.offset + ((part + own) * kind.rows + first) * word.itemsize
        start = wg.item(op, shared, _item(wg, op), place, rows * word.itemsize)
        for rank in range(op.ctas):
            cta = wg.cta if op.ctas == 1 else wg.cta.cluster.ctas[rank]
            write = _write if op.barriers is None else _send
            write(wg, op, cta, i, start, made.view(np.uint8).reshape(-1))


def _store_columns(wg: Warpgroup, op: ops.StorePartials, value: Array, part: int) -> None:
    """Part by part, a word for each column: of each warp what its rows give."""
    kind, word = op.x.as_fragment, _word(op.x.as_fragment.dtype)
    shared: SharedItems = wg.values[op.shared.name]
    rows, size = kind.lanes.of_warp(kind.rows), kind.columns * word.itemsize
    for i in range(4):
        held = value[i * rows : (i + 1) * rows].astype(word)
        made = np.asarray(reduce(op.fn, held, kind.dtype, 0)).astype(word)
        start = wg.item(op, shared, 0, op.offset + (4 * part + i) * size, size)
        _write(wg, op, wg.cta, i, start, made.view(np.uint8).reshape(-1))


def _write(
    wg: Warpgroup, op: ops.StorePartials, cta: Cta, warp: int, start: int, held: Array
) -> None:
    what = f"it overwrites `{wg.values[op.shared.name].label}` (warp {warp})"
    write_shared(wg, op, span(start, held.size), wg.warp(warp), what, held, cta)


def _send(
    wg: Warpgroup, op: ops.StorePartials, cta: Cta, warp: int, start: int, held: Array
) -> None:
    assert op.barriers is not None and op.state is not None
    shared, state = wg.slot(op)
    barrier = wg.barrier(op, op.barriers, state, cta)
    actors, clocks = wg.warp(warp), wg.cta.clocks
    known = np.maximum(clocks.phases_seen(actors), clocks.seen[actors].min(axis=0))
    sent = SendInFlight(wg, op, cta, span(start, held.size), barrier, actors, known, held.copy())
    sent.start(f"`{shared.label}`", asynchronous=False)
    clocks.tick(actors)


def reduce_partials(wg: Warpgroup, op: ops.ReducePartials) -> None:
    kind = op.result.type
    along = "columns" if op.over_rows else "rows"
    words = getattr(kind, along) if isinstance(kind, Fragment) else 1
    shared: SharedItems = wg.values[op.shared.name]
    dtype = dtype_of(op.result)
    word = _word(dtype)
    size = op.parts * words * word.itemsize
    first = op.offset + wg.rank * op.each * words * word.itemsize
    start = wg.item(op, shared, _item(wg, op), first, size)
    held = read_by_warps(wg, op, f"it reads `{shared.label}`", span(start, size))[0]
    held = held.view(word).reshape(op.parts, words)
    made = np.asarray(reduce(op.fn, held.T, dtype, 1))
    shape = (1, -1) if op.over_rows else (-1, 1)
    wg.values[op.result.name] = finish(made.reshape(shape), op.result)


def _item(wg: Warpgroup, op: ops.StorePartials | ops.ReducePartials) -> int:
    if op.state is None:
        return 0
    state: State = wg.values[op.state.name]
    return state.stage


def _word(dtype: DType) -> np.dtype[Any]:
    integer = np.uint32 if dtype.kind == "uint" else np.int32
    return np.dtype(np.float32 if dtype.is_float else integer)


def value_of_reduce_columns(wg: Warpgroup, op: ops.ReduceColumns) -> Any:
    held = wg.get(op.x, op)
    if op.size:
        made = reduce_blocks(op.fn, held, dtype_of(op.x), 1, op.size)
        return finish(made, op.result)
    made = reduce(op.fn, held, dtype_of(op.x), 1)
    return finish(made.reshape(-1, 1), op.result)


def value_of_mma_sync(wg: Warpgroup, op: ops.MmaSync) -> Any:
    rows, vector = (np.concatenate([wg.get(v, op) for v in x], axis=1) for x in (op.a, op.b))
    return finish(rows.astype(np.float32) @ vector.astype(np.float32).T, op.result)


def value_of_scan_columns(wg: Warpgroup, op: ops.ScanColumns) -> Any:
    return finish(scan(wg.get(op.x, op), dtype_of(op.x), 1), op.result)
