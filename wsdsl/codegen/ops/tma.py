"""Tensor maps, TMA loads, stores and prefetches."""

import math
from collections.abc import Sequence

from wsdsl.codegen.addresses.smem_addresses import item_at, warp_place
from wsdsl.codegen.emission_context import Context
from wsdsl.codegen.inline_ptx import At, operands
from wsdsl.ir import ops
from wsdsl.ir.hardware.swizzle import PACKED_LINES
from wsdsl.ir.hardware.wgmma_shapes import WIDTH_STEP


def convert_tma_load(c: Context, op: ops.TmaLoad) -> None:
    shared = c.shared(op.shared)
    item = c.item(shared, c.state(op.state).stage)
    if op.shift is not None:
        item = c.w.add(item, c.scalar(op.shift).text)
    to = At(item, shared.offset + op.offset)
    map, coordinates = _box(c, op)
    barrier, rank = item_at(c, op.barriers, op.state), len(coordinates)
    args = [to.operand, ("ptr", map), barrier.operand, *(("i32", x) for x in coordinates)]
    kind, mask, on = "", "", barrier.ptx(2)
    if op.multicast is not None:
        kind, mask = ".multicast::cluster", f", ${len(args)}"
        args.append(("i16", c.w.value(f"trunc i32 {c.scalar(op.multicast).text} to i16")))
    if op.cta is not None:
        kind, on = ".cta_group::2", f"[on+{barrier.offset}]"
    ptx = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes{kind} "
        f"{to.ptx(0)}, [$1, {{{operands(3, rank)}}}], {on}{mask};"
    )
    if op.cta is not None:
        mapped = f"mapa.shared::cluster.u32 on, $2, ${3 + rank};"
        ptx = f"{{\n.reg .b32 on;\n{mapped}\n{ptx}\n}}"
        args.append(("i32", c.scalar(op.cta).text))
    c.w.asm(ptx, args)


def convert_prefetch_box(c: Context, op: ops.PrefetchBox) -> None:
    map, coordinates = _box(c, op)
    rank = len(coordinates)
    shown = operands(1, rank)
    ptx = f"cp.async.bulk.prefetch.tensor.{rank}d.L2.global.tile [$0, {{{shown}}}];"
    c.w.asm(ptx, [("ptr", map), *(("i32", x) for x in coordinates)])


def _box(c: Context, op: ops.TmaLoad | ops.PrefetchBox) -> tuple[str, list[str]]:
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


def convert_tma_store(c: Context, op: ops.TmaStore) -> None:
    source = warp_place(c, c.shared(op.shared), c.scalar(op.item), op.apart)
    coordinates, map = [c.scalar(x).text for x in op.coordinates], c.pointer(op.map)
    if op.lines:
        _copy_lines(c, op, source, coordinates)
        return
    lines = c.w.multiply(c.threads.warp, map.box[op.row_dim])
    coordinates[op.row_dim] = c.w.add(coordinates[op.row_dim], lines)
    _store_box(c, op, coordinates, source, c.threads.first_lane)


def _store_box(c: Context, op: ops.TmaStore, at: Sequence[str], source: At, pred: str) -> None:
    rank, map = len(at), c.pointer(op.map).text
    ptx = (
        f"@$2 {'cp.reduce' if op.accumulate else 'cp'}.async.bulk.tensor.{rank}d.global.shared::cta"
        f"{'.add' if op.accumulate else ''}.bulk_group "
        f"[$1, {{{operands(3, rank)}}}], {source.ptx(0)};"
    )
    c.w.asm(ptx, [source.operand, ("ptr", map), ("i1", pred), *(("i32", x) for x in reversed(at))])


def _copy_lines(c: Context, op: ops.TmaStore, source: At, coordinates: Sequence[str]) -> None:
    """Copy the lines before the last one from a warp's part at `source`."""
    w, map = c.w, c.definers[op.map]
    assert isinstance(map, ops.MakeTensorMap)
    size = map.tensor.as_tensor.dtype.size(math.prod(map.box))
    shared, at = op.row_dim == op.line_dim, list(coordinates)
    num = op.part_bytes // size if shared else op.lines // WIDTH_STEP
    step = num * WIDTH_STEP if shared else map.box[op.row_dim]
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
        _store_box(c, op, place, part, pred)


def convert_make_tensor_map(c: Context, op: ops.MakeTensorMap) -> None:
    c.values[op.result] = next(c.maps)


def convert_tma_store_commit(c: Context, _: ops.TmaStoreCommit) -> None:
    c.w.asm("@$0 cp.async.bulk.commit_group;", [("i1", c.threads.first_lane)])


def convert_tma_store_wait(c: Context, op: ops.TmaStoreWait) -> None:
    ptx = f"@$0 cp.async.bulk.wait_group{'.read' if op.read else ''} {op.pending};"
    c.w.asm(ptx, [("i1", c.threads.first_lane)])


def convert_prefetch_tensor_map(c: Context, op: ops.PrefetchTensorMap) -> None:
    # The intrinsic is lowered to two instructions, one for the parameter space.
    c.w.asm("prefetch.tensormap [$0];", [("ptr", c.pointer(op.map).text)])
