"""`tma_load`, and `prefetch_box`, which asks L2 for the same box."""

from __future__ import annotations

from wsdsl.codegen import inline_ptx
from wsdsl.codegen.barriers import barrier_at
from wsdsl.codegen.context import Context
from wsdsl.codegen.inline_ptx import At
from wsdsl.ir.memory_ops import TmaLoad
from wsdsl.ir.prefetch_ops import PrefetchBox
from wsdsl.ir.swizzle import PACKED_LINES


def convert_tma_load(c: Context, op: TmaLoad) -> None:
    shared = c.shared(op.shared)
    item = c.item(shared, c.state(op.state).stage)
    if op.shift is not None:
        item = c.w.add(item, c.scalar(op.shift).text)
    to = At(item, shared.offset + op.offset)
    map, coordinates = _box(c, op)
    barrier = barrier_at(c, op.barriers, op.state)
    mask = None if op.multicast is None else c.scalar(op.multicast).text
    if mask is not None:
        mask = c.w.value(f"trunc i32 {mask} to i16")
    cta = None if op.cta is None else c.scalar(op.cta).text
    inline_ptx.tma_load(c.w, map, coordinates, to, barrier, mask, cta)


def convert_prefetch_box(c: Context, op: PrefetchBox) -> None:
    map, coordinates = _box(c, op)
    rank = len(coordinates)
    shown = ", ".join(f"${1 + i}" for i in range(rank))
    ptx = f"cp.async.bulk.prefetch.tensor.{rank}d.L2.global.tile [$0, {{{shown}}}];"
    args = [("ptr", map), *(("i32", x) for x in coordinates)]
    c.w.asm(ptx, "void", ",".join(["l", *["r"] * rank]), args)


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
