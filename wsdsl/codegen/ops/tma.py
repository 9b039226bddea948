"""Tensor maps, TMA loads, stores and prefetches."""

from __future__ import annotations

import math
from collections.abc import Sequence

from wsdsl.codegen import inline_ptx
from wsdsl.codegen.addresses.smem_addresses import item_at, warp_place
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.inline_ptx import At
from wsdsl.ir import ops
from wsdsl.ir.hardware.swizzle import PACKED_LINES
from wsdsl.ir.hardware.wgmma_shapes import WIDTH_STEP
from wsdsl.ir.ops import MakeTensorMap, PrefetchBox, TmaLoad, TmaStore


def convert_tma_load(c: Context, op: TmaLoad) -> None:
    shared = c.shared(op.shared)
    item = c.item(shared, c.state(op.state).stage)
    if op.shift is not None:
        item = c.w.add(item, c.scalar(op.shift).text)
    to = At(item, shared.offset + op.offset)
    map, coordinates = _box(c, op)
    barrier = item_at(c, op.barriers, op.state)
    mask = None if op.multicast is None else c.scalar(op.multicast).text
    if mask is not None:
        mask = c.w.value(f"trunc i32 {mask} to i16")
    cta = None if op.cta is None else c.scalar(op.cta).text
    inline_ptx.tma_load(c.w, map, coordinates, to, barrier, mask, cta)


def convert_prefetch_box(c: Context, op: PrefetchBox) -> None:
    map, coordinates = _box(c, op)
    rank = len(coordinates)
    shown = inline_ptx.operands(1, rank)
    ptx = f"cp.async.bulk.prefetch.tensor.{rank}d.L2.global.tile [$0, {{{shown}}}];"
    c.w.asm(ptx, [("ptr", map), *(("i32", x) for x in coordinates)])


def _box(c: Context, op: TmaLoad | PrefetchBox) -> tuple[str, list[str]]:
    """The map, and where by its dimensions, the contiguous one first."""
    map, coordinates = c.pointer(op.map), [c.scalar(x).text for x in reversed(op.coordinates)]
    if map.packed:
        blocks = [
            c.w.binary("lshr", "i32", x, PACKED_LINES.bit_length() - 1) for x in coordinates[:2]
        ]
        coordinates = ["0", "0", *blocks, *coordinates[2:]]
    elif map.nibbles:
        coordinates[0] = c.w.binary("ashr", "i32", coordinates[0], 1)
    return map.text, coordinates


def convert_tma_store(c: Context, op: TmaStore) -> None:
    source = warp_place(c, c.shared(op.shared), c.scalar(op.item), op.apart)
    coordinates, map = [c.scalar(x).text for x in op.coordinates], c.pointer(op.map)
    elected = c.threads.first_lane
    if op.lines:
        _copy_lines(c, op, source, coordinates)
        return
    lines = c.w.multiply(c.threads.warp, map.box[op.row_dim])
    coordinates[op.row_dim] = c.w.add(coordinates[op.row_dim], lines)
    inline_ptx.tma_store(c.w, map.text, coordinates[::-1], source, elected, op.accumulate)


def _copy_lines(c: Context, op: TmaStore, source: At, coordinates: Sequence[str]) -> None:
    """By a warp, from its part at `source`, what lies in front of the last line."""
    w, map, made = c.w, c.pointer(op.map), c.made[op.map]
    assert isinstance(made, MakeTensorMap)
    size = made.tensor.as_tensor.dtype.size(math.prod(made.box))
    shared, at = op.row_dim == op.line_dim, list(coordinates)
    num = op.part_bytes // size if shared else op.lines // WIDTH_STEP
    step = num * WIDTH_STEP if shared else made.box[op.row_dim]
    before = w.multiply(c.threads.warp, step)
    at[op.row_dim] = w.add(at[op.row_dim], before)
    end = str(op.lines)
    if op.narrower is not None:
        end = w.binary("sub", "i32", end, c.scalar(op.narrower).text)
    for n in range(num):
        place = list(at)
        place[op.line_dim] = w.add(place[op.line_dim], n * WIDTH_STEP)
        line = w.add(before, n * WIDTH_STEP) if shared else str(n * WIDTH_STEP)
        pred = w.binary("and", "i1", c.threads.first_lane, w.compare("slt", line, end))
        part = At(source.base, source.offset + n * size)
        inline_ptx.tma_store(w, map.text, place[::-1], part, pred, op.accumulate)


def convert_make_tensor_map(c: Context, op: MakeTensorMap) -> None:
    c.held[op.result] = next(c.maps)


def convert_tma_store_commit(c: Context, _: ops.TmaStoreCommit) -> None:
    inline_ptx.tma_store_commit(c.w, c.threads.first_lane)


def convert_tma_store_wait(c: Context, op: ops.TmaStoreWait) -> None:
    inline_ptx.tma_store_wait(c.w, op.pending, op.read, c.threads.first_lane)


def convert_prefetch_tensor_map(c: Context, op: ops.PrefetchTensorMap) -> None:
    inline_ptx.prefetch_tensor_map(c.w, c.pointer(op.map).text)
