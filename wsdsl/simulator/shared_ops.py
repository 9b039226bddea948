"""What threads write to and read from SMEM, tile by tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wsdsl.ir import memory_ops as m
from wsdsl.ir.op import Op
from wsdsl.ir.swizzle import SWIZZLE_SPAN, lines_reached
from wsdsl.ir.types import DTYPES, Fragment
from wsdsl.simulator.arithmetic import Array, numpy_dtype
from wsdsl.simulator.arrays import elements_of
from wsdsl.simulator.context import (
    SharedItems,
    State,
    Steps,
    Warpgroup,
)
from wsdsl.simulator.races import ThreadAccess
from wsdsl.simulator.scalar_ops import dtype_of, finish
from wsdsl.simulator.shared_memory import alignment


def aligned(wg: Warpgroup, op: Op, address: int, swizzle: str) -> None:
    if address % alignment(swizzle):
        wg.fail(
            op,
            f"SMEM address {address} with swizzle {swizzle}: no multiple of {alignment(swizzle)}",
        )


def write_shared(wg: Warpgroup, op: Op, start: int, size: int, writers: slice, what: str) -> None:
    """Check generic stores to [start, start + size) by `writers`."""
    access = ThreadAccess(wg.told, op, writers, wg.cta.clocks.own[writers].copy())
    wg.settle(op, what, wg.cta.accesses.write(start, start + size, access, writers, False))


def read_by_warps(wg: Warpgroup, op: Op, start: int, size: int, what: str, apart: int = 0) -> None:
    """Check generic loads of `size` bytes by each warp, from `start` on, or `apart` bytes behind
    those of the warp before.
    """
    for i in range(4):
        warp, begin = wg.warp(i), start + i * apart
        access = ThreadAccess(wg.told, op, warp, wg.cta.clocks.own[warp].copy())
        reader = wg.index, 4, i
        conflict = wg.cta.accesses.read(begin, begin + size, access, warp, reader, False)
        wg.settle(op, f"{what} (warp {i})", conflict)


def store_shared(wg: Warpgroup, op: m.StoreShared) -> None:
    value: Array = wg.get(op.value, op)
    shared: SharedItems = wg.values[op.shared.name]
    if op.state is not None:
        store_panels(wg, op, shared, value)
        return
    assert op.item is not None
    item = int(wg.get(op.item, op))
    start = wg.item(op, shared, item, 0, shared.bytes)
    parts = 1 if op.joined else 4
    quarter = shared.bytes // parts
    for i in range(parts):
        rows = value if op.joined else value[16 * i : 16 * i + 16]
        lines = np.ascontiguousarray(rows.T if op.transposed else rows)
        if op.half and op.transposed:
            _store_half(wg, op, start + i * quarter, lines, i)
            continue
        line_bytes, span = lines.shape[1] * lines.itemsize, SWIZZLE_SPAN[op.swizzle]
        if line_bytes != span and (op.swizzle != "none" or line_bytes % span):
            wg.fail(op, f"lines of {line_bytes} bytes with swizzle {op.swizzle}")
        if op.before + lines.nbytes > quarter:
            wg.fail(op, f"{op.before + lines.nbytes} bytes, a warp has {quarter}")
        address = start + i * quarter + op.before
        aligned(wg, op, address, op.swizzle)
        who, actors = ("all warps", wg.everyone) if op.joined else (f"warp {i}", wg.warp(i))
        what = f"it overwrites item {item} of `{shared.label}` ({who})"
        write_shared(wg, op, address, lines.nbytes, actors, what)
        wg.cta.memory.write(address, lines.view(np.uint8).reshape(-1, span), op.swizzle)


def _store_half(wg: Warpgroup, op: m.StoreShared, panel: int, lines: Array, i: int) -> None:
    """Of lines of 32 elements."""
    count, wide = len(lines), op.line * lines.itemsize
    if wide != SWIZZLE_SPAN[op.swizzle] or count * wide > wg.values[op.shared.name].bytes // 4:
        wg.fail(op, f"{count} lines of {wide} bytes with swizzle {op.swizzle}")
    aligned(wg, op, panel, op.swizzle)
    write_shared(wg, op, panel, count * wide, wg.warp(i), f"it overwrites a panel (warp {i})")
    everything = slice(None), slice(None)
    held = wg.cta.memory.read(panel, count, wide, op.swizzle, everything).copy()
    held[:, op.along : op.along + wide // 2] = lines.view(np.uint8)
    wg.cta.memory.write(panel, held, op.swizzle)


def store_panels(wg: Warpgroup, op: m.StoreShared, shared: SharedItems, value: Array) -> None:
    """Lines of a tile, of its last panel as far as the fragment has columns."""
    assert op.state is not None
    state: State = wg.values[op.state.name]
    first = 0 if op.start is None else int(wg.get(op.start, op))
    if first < 0 or first + lines_reached(op.apart) > op.rows:
        wg.fail(op, f"lines {first} to {first + lines_reached(op.apart)} of a tile of {op.rows}")
    span = SWIZZLE_SPAN[op.swizzle]
    row = np.arange(len(value))
    rows = first + row + row // 16 * (op.apart - 16)
    tile = wg.item(op, shared, state.stage, op.offset, op.panels * op.rows * span)
    aligned(wg, op, tile, op.swizzle)
    what = f"it overwrites item {state.stage} of `{shared.label}`"
    lines = np.ascontiguousarray(value).view(np.uint8).reshape(len(value), -1)
    for panel in range(op.panels):
        own = lines[:, panel * span : (panel + 1) * span]
        start = tile + panel * op.rows * span
        for i in range(4):
            place = start + (first + op.apart * i) * span
            write_shared(wg, op, place, 16 * span, wg.warp(i), f"{what} (warp {i})")
        held = wg.cta.memory.read(start, op.rows, span, op.swizzle, (slice(None), slice(None)))
        held = held.copy()
        held[rows, : own.shape[1]] = own
        wg.cta.memory.write(start, held, op.swizzle)


def load_panels(wg: Warpgroup, op: m.LoadPanels) -> None:
    kind = op.result.type
    assert isinstance(kind, Fragment)
    shared: SharedItems = wg.values[op.shared.name]
    state: State = wg.values[op.state.name]
    first = 0 if op.start is None else int(wg.get(op.start, op))
    reached = lines_reached(op.apart) if kind.rows > 1 else 1
    if first < 0 or first + reached > op.rows:
        wg.fail(op, f"lines {first} to {first + reached} of a tile of {op.rows}")
    row_bytes = kind.dtype.size(kind.columns)
    tile = wg.item(op, shared, state.stage, op.offset, op.rows * row_bytes)
    if op.start is not None:
        aligned(wg, op, tile, op.swizzle)
    span = SWIZZLE_SPAN[op.swizzle]
    what = f"it reads item {state.stage} of `{shared.label}`"
    parts = 4 if kind.rows > 1 else 1
    for i in range(parts):
        readers = wg.warp(i) if parts > 1 else wg.everyone
        lines = kind.rows // parts
        for panel in range(-(-row_bytes // span)):
            start = tile + (panel * op.rows + first + i * op.apart) * span
            access = ThreadAccess(wg.told, op, readers, wg.cta.clocks.own[readers].copy())
            conflict = wg.cta.accesses.read(
                start, start + lines * span, access, readers, (wg.index, parts, i), False
            )
            wg.settle(op, what, conflict)
    rows = slice(first, first + reached), slice(None)
    held = wg.cta.memory.read(tile, op.rows, row_bytes, op.swizzle, rows)
    if op.apart != 16:
        held = np.concatenate([held[i * op.apart : i * op.apart + 16] for i in range(4)])
    elements = elements_of(held, kind.dtype)
    wg.values[op.result.name] = elements.reshape(kind.rows, kind.columns)


def load_shared(wg: Warpgroup, op: m.LoadShared) -> None:
    shared: SharedItems = wg.values[op.shared.name]
    state: State = wg.values[op.state.name]
    start = wg.item(op, shared, state.stage, op.offset, op.bytes)
    read_by_warps(wg, op, start, op.bytes, f"it reads item {state.stage} of `{shared.label}`")
    first = 0 if op.first is None else int(wg.get(op.first, op))
    index = first + np.asarray(wg.get(op.index, op), np.int64) * op.stride
    width = dtype_of(op.result).bytes
    if index.min() < 0 or width * index.max() >= op.bytes:
        wg.fail(op, f"elements {index.min()} to {index.max()} of {op.bytes} bytes")
    line = wg.cta.memory.bytes[start : start + op.bytes].view(numpy_dtype(dtype_of(op.result)))
    wg.values[op.result.name] = finish(line[index], op.result)


def clear_panels(wg: Warpgroup, op: m.ClearPanels) -> None:
    shared: SharedItems = wg.values[op.shared.name]
    state: State = wg.values[op.state.name]
    width = DTYPES[op.dtype].bytes
    size = op.rows * op.columns * width
    start = wg.item(op, shared, state.stage, op.offset, size)
    aligned(wg, op, start, op.swizzle)
    what = f"it overwrites item {state.stage} of `{shared.label}`"
    write_shared(wg, op, start, size, wg.everyone, what)
    everything = slice(None), slice(None)
    held = wg.cta.memory.read(start, op.rows, op.columns * width, op.swizzle, everything)
    tile = held.reshape(op.rows, op.columns, width).copy()
    index = np.arange(op.rows if op.lines else op.columns)
    outside = (index < int(wg.get(op.begin, op))) | (index >= int(wg.get(op.end, op)))
    tile[(outside,) if op.lines else (slice(None), outside)] = 0
    wg.cta.memory.write(start, tile.reshape(op.rows, -1), op.swizzle)


BY_THREADS: dict[type[Op], Callable[[Warpgroup, Any], Steps | None]] = {
    m.LoadPanels: load_panels,
    m.StoreShared: store_shared,
    m.LoadShared: load_shared,
    m.ClearPanels: clear_panels,
}
