"""Fragments that change their rows for their columns, by way of SMEM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wsdsl.ir import transpose_ops as tr
from wsdsl.ir.op import Op
from wsdsl.ir.swizzle import line_place
from wsdsl.ir.types import Fragment
from wsdsl.simulator.arithmetic import Array, numpy_dtype
from wsdsl.simulator.context import SharedItems, Warpgroup
from wsdsl.simulator.scalar_ops import finish
from wsdsl.simulator.shared_memory import Region
from wsdsl.simulator.shared_ops import read_by_warps, write_shared


def _places(lines: int, line_bytes: int, step: int, first: int) -> Array:
    """Of the bytes of so many lines, from the `first` on."""
    line: Any = np.arange(first, first + lines)[:, None]
    byte: Any = np.arange(line_bytes)[None, :]
    return np.asarray(line_place(line, byte, line_bytes, step))


def store_transposed(wg: Warpgroup, op: tr.StoreTransposed) -> None:
    """All warps write to each line."""
    shared: SharedItems = wg.values[op.shared.name]
    rows = np.concatenate([np.asarray(wg.get(part, op)) for part in op.parts])
    lines = np.ascontiguousarray(rows.T).view(np.uint8)
    count, line_bytes = lines.shape
    item, first = int(wg.get(op.item, op)), op.line * line_bytes
    start = wg.item(op, shared, item, first, lines.size)
    what = f"it overwrites item {item} of `{shared.label}`"
    places = start - first + _places(count, line_bytes, op.step, op.line)
    region = Region([(start, start + lines.size)], places)
    write_shared(wg, op, region, wg.everyone, what, lines)


def load_transposed(wg: Warpgroup, op: tr.LoadTransposed) -> None:
    """Each warp reads lines of its own."""
    kind = op.result.type
    assert isinstance(kind, Fragment)
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


BY_LINES: dict[type[Op], Callable[[Warpgroup, Any], None]] = {
    tr.StoreTransposed: store_transposed,
    tr.LoadTransposed: load_transposed,
}
