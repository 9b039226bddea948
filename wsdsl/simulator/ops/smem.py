"""Accesses of threads to tiles in SMEM."""

from typing import Any

import numpy as np

from wsdsl.ir import ops
from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN, line_place, lines_reached
from wsdsl.ir.op import Op
from wsdsl.ir.types import DTYPES, Shared
from wsdsl.simulator.cta import Cta
from wsdsl.simulator.reference.arithmetic import Array, dtype_of, numpy_dtype
from wsdsl.simulator.reference.bound_arrays import elements_of
from wsdsl.simulator.reference.fragment_arrays import finish
from wsdsl.simulator.state.smem_bytes import Region, alignment, tile
from wsdsl.simulator.warpgroup import SharedItems, Warpgroup


def aligned(wg: Warpgroup, op: Op, address: int, swizzle: str) -> None:
    if address % alignment(swizzle):
        wg.fail(
            op,
            f"SMEM address {address} is not a multiple of {alignment(swizzle)} (swizzle {swizzle})",
        )


def write_shared(
    wg: Warpgroup,
    op: Op,
    region: Region,
    writers: slice,
    what: str,
    held: Any,
    cta: Cta | None = None,
) -> None:
    """Store `held` by threads. `cta`: to whose SMEM, if another CTA's."""
    memory, access = (cta or wg.cta).memory, wg.by_threads(op, writers)
    wg.begin(op, what, "write", memory, region, access, writers, asynchronous=False)
    memory.write(region, held)


def read_shared(
    wg: Warpgroup, op: Op, region: Region, readers: slice, what: str, reader: object
) -> Array:
    """Load by threads."""
    memory, access = wg.cta.memory, wg.by_threads(op, readers)
    wg.begin(op, what, "read", memory, region, access, readers, reader, asynchronous=False)
    return memory.read(region)


def read_by_warps(wg: Warpgroup, op: Op, what: str, *regions: Region) -> list[Array]:
    """Load a region by each warp, or one by all of them."""
    return [
        read_shared(wg, op, region, wg.warp(i), f"{what} (warp {i})", (wg.index, 4, i))
        for i, region in enumerate(regions if len(regions) > 1 else regions * 4)
    ]


def store_shared(wg: Warpgroup, op: ops.StoreShared) -> None:
    value: Array = wg.get(op.value, op)
    shared: SharedItems = wg.values[op.shared.name]
    if op.state is not None:
        store_panels(wg, op, value)
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
            wg.fail(op, f"rows of {line_bytes} bytes do not fit swizzle {op.swizzle}")
        if op.before + lines.nbytes > quarter:
            wg.outside(op, f"{op.before + lines.nbytes} of {quarter} bytes per warp")
        address = start + i * quarter + op.before
        aligned(wg, op, address, op.swizzle)
        who, actors = ("all warps", wg.everyone) if op.joined else (f"warp {i}", wg.warp(i))
        what = f"it overwrites item {item} of `{shared.label}` ({who})"
        held = lines.view(np.uint8).reshape(-1, span)
        write_shared(wg, op, tile(address, *held.shape, op.swizzle), actors, what, held)


def _store_half(wg: Warpgroup, op: ops.StoreShared, panel: int, lines: Array, i: int) -> None:
    """Of lines of 32 elements."""
    count, wide = len(lines), op.line * lines.itemsize
    if wide != SWIZZLE_SPAN[op.swizzle] or count * wide > wg.values[op.shared.name].bytes // 4:
        wg.fail(op, f"{count} rows of {wide} bytes do not fit swizzle {op.swizzle}")
    aligned(wg, op, panel, op.swizzle)
    region = tile(panel, count, wide, op.swizzle, columns=(op.along, op.along + wide // 2))
    what = f"it overwrites a panel (warp {i})"
    write_shared(wg, op, region, wg.warp(i), what, lines.view(np.uint8))


def store_panels(wg: Warpgroup, op: ops.StoreShared, value: Array) -> None:
    """Lines of a tile, of its last panel as far as the fragment has columns."""
    first = 0 if op.start is None else int(wg.get(op.start, op))
    if first < 0 or first + lines_reached(op.apart) > op.rows:
        wg.outside(op, f"rows {first} to {first + lines_reached(op.apart)} of {op.rows} rows")
    row_bytes = op.panels * SWIZZLE_SPAN[op.swizzle]
    start, item = wg.place(op, op.rows * row_bytes, op.offset)
    aligned(wg, op, start, op.swizzle)
    lines = np.ascontiguousarray(value).view(np.uint8).reshape(len(value), -1)
    for i in range(4):
        at, own = first + op.apart * i, lines[16 * i : 16 * i + 16]
        part = (at, at + 16), (0, own.shape[1])
        region = tile(start, op.rows, row_bytes, op.swizzle, *part)
        write_shared(wg, op, region, wg.warp(i), f"it overwrites {item} (warp {i})", own)


def load_panels(wg: Warpgroup, op: ops.LoadPanels) -> None:
    kind = op.result.as_fragment
    first = 0 if op.start is None else int(wg.get(op.start, op))
    reached = lines_reached(op.apart) if kind.rows > 1 else 1
    if first < 0 or first + reached > op.rows:
        wg.outside(op, f"rows {first} to {first + reached} of {op.rows} rows")
    row_bytes = kind.dtype.size(kind.columns)
    start, item = wg.place(op, op.rows * row_bytes, op.offset)
    if op.start is not None:
        aligned(wg, op, start, op.swizzle)
    parts = 4 if kind.rows > 1 else 1
    held = list[Array]()
    for i in range(parts):
        readers = wg.warp(i) if parts > 1 else wg.everyone
        lines = first + i * op.apart, first + i * op.apart + kind.rows // parts
        region = tile(start, op.rows, row_bytes, op.swizzle, lines)
        reader = wg.index, parts, i
        held.append(read_shared(wg, op, region, readers, f"it reads {item}", reader))
    elements = elements_of(np.concatenate(held), kind.dtype)
    wg.values[op.result.name] = elements.reshape(kind.rows, kind.columns)


def load_shared(wg: Warpgroup, op: ops.LoadShared) -> None:
    start, item = wg.place(op, op.bytes, op.offset)
    first = 0 if op.first is None else int(wg.get(op.first, op))
    index = first + np.asarray(wg.get(op.index, op), np.int64) * op.stride
    width = dtype_of(op.result).bytes
    if index.min() < 0 or width * index.max() >= op.bytes:
        wg.outside(op, f"elements {index.min()} to {index.max()} of {op.bytes} bytes")
    places = start + width * index[..., None] + np.arange(width)
    region = Region([(start, start + op.bytes)], places)
    held = read_by_warps(wg, op, f"it reads {item}", region)[0]
    elements = held.view(numpy_dtype(dtype_of(op.result)))[..., 0]
    wg.values[op.result.name] = finish(elements, op.result)


def clear_panels(wg: Warpgroup, op: ops.ClearPanels) -> None:
    width = DTYPES[op.dtype].bytes
    start, item = wg.place(op, op.rows * op.columns * width, op.offset)
    aligned(wg, op, start, op.swizzle)
    whole = tile(start, op.rows, op.columns * width, op.swizzle)
    places = whole.bytes.reshape(op.rows, op.columns, width)
    index = np.arange(op.rows if op.lines else op.columns)
    outside = (index < int(wg.get(op.begin, op))) | (index >= int(wg.get(op.end, op)))
    cleared = Region(whole.ranges, places[outside] if op.lines else places[:, outside])
    write_shared(wg, op, cleared, wg.everyone, f"it overwrites {item}", 0)


def _places(lines: int, line_bytes: int, step: int, first: int) -> Array:
    """The addresses of the bytes of `lines` lines, from the `first` on."""
    line: Any = np.arange(first, first + lines)[:, None]
    byte: Any = np.arange(line_bytes)[None, :]
    return np.asarray(line_place(line, byte, line_bytes, step))


def store_transposed(wg: Warpgroup, op: ops.StoreTransposed) -> None:
    """All warps write to each line."""
    shared: SharedItems = wg.values[op.shared.name]
    rows = np.concatenate([np.asarray(wg.get(part, op)) for part in op.parts])
    lines = np.ascontiguousarray(rows.T).view(np.uint8)
    count, line_bytes = lines.shape
    item, first = int(wg.get(op.item, op)), op.line * line_bytes
    start = wg.item(op, shared, item, first, lines.size)
    what = f"it overwrites item {item} of `{shared.label}`"
    places = start - first + _places(count, line_bytes, op.step, op.line)
    write_shared(wg, op, Region([(start, start + lines.size)], places), wg.everyone, what, lines)


def load_transposed(wg: Warpgroup, op: ops.LoadTransposed) -> None:
    """Each warp reads lines of its own."""
    kind = op.result.as_fragment
    shared: SharedItems = wg.values[op.shared.name]
    line_bytes, item = op.length * kind.dtype.bytes, int(wg.get(op.item, op))
    first = op.line * line_bytes
    start = wg.item(op, shared, item, first, kind.rows * line_bytes)
    places = start - first + _places(kind.rows, line_bytes, op.step, op.line)
    rows, own = kind.rows // 4, kind.rows // 4 * line_bytes
    regions = [
        Region([(start + i * own, start + i * own + own)], places[i * rows : i * rows + rows])
        for i in range(4)
    ]
    held = read_by_warps(wg, op, f"it reads item {item} of `{shared.label}`", *regions)
    lines = np.concatenate(held).view(numpy_dtype(kind.dtype))
    wg.values[op.result.name] = finish(lines[:, op.first : op.first + kind.columns], op.result)


def allocate_shared(wg: Warpgroup, op: ops.AllocateShared) -> None:
    if op.offset < 0:
        wg.fail(op, f"`{op.label}` has no offset in SMEM")
    kind = op.result.type_as(Shared)
    wg.values[op.result.name] = SharedItems(op.label, op.offset, kind.bytes, kind.num)
