"""Sums of products that lie in tensor memory: which values cross there from the thread that
multiplies to those who compute, and what a kernel must be for that.

    %acc = for_tiles(index=%k, ...) { ... contract ... }     mma
    store(tensor=%C, index=(%m, %n), value=%acc)             compute

All sums of an output tile share a slot of one circular buffer. It has two, where there are columns
for them: products of a tile run while the sums of the one before are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from wsdsl.diagnostics import Finding
from wsdsl.ir.op import Kernel, Op, Region, Value, once, operands, results_of
from wsdsl.ir.ranges import walks_a_part
from wsdsl.ir.tcgen05 import COLUMNS, LANES
from wsdsl.ir.tile_ops import (
    Block,
    Constant,
    Contract,
    DimSize,
    ForEach,
    ForTiles,
    Load,
    Map,
    Store,
    Yield,
)
from wsdsl.ir.types import Tile
from wsdsl.ir.walk import uses, walk, yielded
from wsdsl.lowering.axes import axes_of, output_nest
from wsdsl.lowering.decode import decoded
from wsdsl.lowering.edge import Edge
from wsdsl.lowering.product_operands import computed_operands, copied_operands, operand_scales
from wsdsl.lowering.scale_loads import kept_out
from wsdsl.lowering.slots import SlotGroup, operand_slots
from wsdsl.lowering.tensor_scales import BUFFERED as SCALES_BUFFERED
from wsdsl.lowering.tensor_scales import columns_of_scales
from wsdsl.lowering.zeros import tiles_of_zeros

BUFFERED = 2
"""Slots for sums, where columns allow."""


@once
def sum_slots(kernel: Kernel) -> tuple[SlotGroup, ...]:
    """One group, of the sums of an output tile; none where products are summed in registers."""
    body = output_nest(kernel)[1]
    makers = [op for op in body if multiplies(op)] if kernel.target.has_tensor_memory else []
    if not makers:
        return ()
    # What more is added to crosses as a part of that.
    inside = {v for op in makers for v in operands(op)}
    ring = 1 + max((group.ring for group in operand_slots(kernel)), default=-1)
    edges = [
        Edge(
            values=(value,),
            made=op,
            producer="mma",
            consumers=("compute",),
            layout=value.as_tile,
            produced_in=op.index if isinstance(op, (ForTiles, ForEach)) else None,
            consumed_in=None,
            space="TMEM",
            ring=ring,
            depth="sums",
        )
        for op in makers
        for value in results_of(op)
        if value not in inside
    ]
    places = [i for i, op in enumerate(body) if op in makers]
    return (SlotGroup(body, places[0], places[-1], edges),)


def multiplying_warps(kernel: Kernel) -> int:
    """Of the partition of the thread that multiplies: the next warp of a load warpgroup, unless all
    of that copy.
    """
    return 4 if copied_operands(kernel) else 1


def multiplies(op: Op) -> bool:
    return any(isinstance(inner, Contract) for inner in walk((op,)))


def sum_columns(kernel: Kernel, tile: Tile, sizes: Mapping[str, int]) -> int:
    """Of tensor memory that a sum takes."""
    axes = axes_of(kernel)
    sides = {axes[name].role: sizes[name] for name in tile.axes}
    return sides.get("columns", 1) * -(-sides.get("rows", LANES) // LANES)


def slot_columns(kernel: Kernel, sizes: Mapping[str, int]) -> int:
    """Of all sums of an output tile."""
    edges = (edge for group in sum_slots(kernel) for edge in group.edges)
    return sum(sum_columns(kernel, edge.layout, sizes) for edge in edges)


def sum_depth(kernel: Kernel, sizes: Mapping[str, int]) -> int:
    """Slots of the ring of sums."""
    left = COLUMNS - scale_columns_of(kernel, sizes)
    return max(1, min(BUFFERED, left // max(1, slot_columns(kernel, sizes))))


def scale_columns_of(kernel: Kernel, sizes: Mapping[str, int]) -> int:
    """Of all slots of scales, or of those that are copied."""
    copied = (e for g in operand_slots(kernel) if g.consumer == "mma" for e in g.edges if e.box)
    stored = SCALES_BUFFERED * scale_slot_columns(kernel, sizes)
    return stored + sum(_scale_columns(edge, sizes) for edge in copied)


def scale_slot_columns(kernel: Kernel, sizes: Mapping[str, int]) -> int:
    """Of all scales of a k-tile."""
    groups = (group for group in operand_slots(kernel) if not group.in_shared)
    return max((sum(_scale_columns(edge, sizes) for edge in g.edges) for g in groups), default=0)


def _scale_columns(edge: Edge, sizes: Mapping[str, int]) -> int:
    return columns_of_scales(edge.layout, edge.load.block, sizes)


# What is not lowered yet --------------------------------------------------------------------------


def unfit_sums(kernel: Kernel) -> Iterator[Finding]:
    """Of a TILE kernel, at its lines."""
    target = kernel.target
    if not target.has_tensor_memory or not kernel.of(Contract):
        return
    told, elsewhere = f"is not lowered for {target} yet", 'Schedule(arch="sm_90a") takes it'
    for op in kernel.of(Contract):
        if op.dtype.is_integer and not target.multiplies_integers:
            what = f"`@` of {op.dtype}: the tensor cores of {target} take no integers"
            yield Finding(what, op.loc, 'convert to f8e4m3 or f16, or compile for arch="sm_100a"')
        in_registers = [v for v in computed_operands(kernel, op) if v not in decoded(kernel).tiles]
        if in_registers:
            what = f"a computed operand of `@` in registers {told}"
            yield Finding(what, op.loc, f"{elsewhere}; {_instead(kernel)}")
    yield from _unfit_scales(kernel)
    ready = tiles_of_zeros(kernel.body)
    body = output_nest(kernel)[1]
    counts = Counter(uses(body))
    ready |= decoded(kernel).inside
    for op in body:
        if multiplies(op):
            yield from _unfit_maker(op, ready, counts, told, elsewhere)


def _instead(kernel: Kernel) -> str:
    """Of an operand in registers."""
    if kernel.schedule and kernel.schedule.decode:
        return 'or make it in SMEM, decode="shared", which is chosen if decode is left out'
    return "or make it of loads alone, element by element, which then is done in SMEM"


def _unfit_scales(kernel: Kernel) -> Iterator[Finding]:
    for op in kernel.of(Load):
        if op.result in operand_scales(kernel) and op.tensor.name in kept_out(kernel):
            what = f"TMA brings scales, and rows of `{op.tensor.name}` are no multiple of 16 bytes"
            yield Finding(what, op.loc, "give it rows of a multiple of 16 scales; zeros fill them")
    if operand_scales(kernel) and (names := copied_operands(kernel)):
        what = f"threads copy {', '.join(sorted(names))}, and products with scales then are not"
        yield Finding(f"{what} lowered yet", kernel.loc, "give them rows of a multiple of 16 bytes")


def _unfit_maker(
    op: Op, ready: set[Value], counts: Counter[Value], told: str, elsewhere: str
) -> Iterator[Finding]:
    """A product, or a loop that does nothing but add products to sums; `ready` are zeros, and sums
    that nothing else reads: more is added to them where they lie.
    """
    match op:
        case Contract():
            if op.acc is not None and op.acc not in ready:
                what = f"a product that is added to another value {told}"
                yield Finding(what, op.loc, elsewhere)
            results = [op.result]
        case ForTiles() | ForEach():
            if walks_a_part(op):
                yield Finding(f"a sum over a part of a dimension {told}", op.loc, elsewhere)
            if not ready.issuperset(op.init):
                what = f"a loop that carries more than sums from zeros {told}"
                yield Finding(what, op.loc, elsewhere)
            ready |= {v for v in op.args if counts[v] == 1}
            for inner in op.body:
                yield from _unfit_inside(inner, op, ready, counts, told, elsewhere)
            carried = zip(op.args, yielded(op.body), strict=True)
            if not all(_is_added_to(op.body, *each) for each in carried):
                what = f"a loop that carries more than sums of products {told}"
                yield Finding(what, op.loc, elsewhere)
            results = [*op.result]
        case _:
            yield Finding(f"a product in a condition {told}", op.loc, elsewhere)
            results = []
    ready |= {v for v in results if counts[v] == 1}


def _unfit_inside(
    op: Op,
    loop: ForTiles | ForEach,
    ready: set[Value],
    counts: Counter[Value],
    told: str,
    elsewhere: str,
) -> Iterator[Finding]:
    """Of a loop with products."""
    if multiplies(op):
        yield from _unfit_maker(op, ready, counts, told, elsewhere)
    elif ready & {*results_of(op)}:
        pass  # Others make an operand of it.
    elif isinstance(op, Load):
        operand = any(isinstance(o, Contract) and op.result in operands(o) for o in walk(loop.body))
        if _is_tile(op.result) and not operand:
            yield Finding(f"what a loop loads beside operands {told}", op.loc, elsewhere)
    elif isinstance(op, Store):
        yield Finding(f"a store in a loop with products {told}", op.loc, elsewhere)
    elif not isinstance(op, (Block, Constant, DimSize, Map, Yield)) or any(
        map(_is_tile, results_of(op))
    ):
        what = f"what a loop computes of its products, or beside them, {told}"
        yield Finding(what, op.loc, elsewhere)


def _is_added_to(body: Region, arg: Value, last: Value) -> bool:
    """Whether a loop does nothing else to what it carries."""
    made = {v: op for op in body for v in results_of(op)}
    while last != arg:
        match made.get(last):
            case Contract(acc=Value() as acc):
                last = acc
            case (ForTiles() | ForEach()) as op:
                last = op.init[op.result.index(last)]
            case _:
                return False
    return True


def _is_tile(value: Value) -> bool:
    return isinstance(value.type, Tile) and bool(value.type.axes)
