"""Sums of products that lie in tensor memory: which values cross there from the thread that
multiplies to those who compute, and what a kernel must be for that.

    %acc = for_tiles(index=%k, ...) { ... contract ... }     mma
    store(tensor=%C, index=(%m, %n), value=%acc)             compute

All sums of an output tile share a slot of one circular buffer. It has two, where there are columns
for them: products of a tile run while the sums of the one before are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wsdsl.diagnostics import Finding
from wsdsl.ir.op import Kernel, Op, Value, once, operands, regions, results_of
from wsdsl.ir.ranges import walks_a_part
from wsdsl.ir.tcgen05 import COLUMNS, LANES
from wsdsl.ir.tile_ops import Block, Constant, Contract, DimSize, ForTiles, Load, Map, Store, Yield
from wsdsl.ir.types import Tile
from wsdsl.ir.walk import used_inside, walk, yielded
from wsdsl.lowering.axes import axes_of, output_nest
from wsdsl.lowering.edge import Edge
from wsdsl.lowering.product_operands import computed_operands
from wsdsl.lowering.slots import SlotGroup, operand_slots
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
    ring = 1 + max((group.ring for group in operand_slots(kernel)), default=-1)
    edges = [
        Edge(
            values=(value,),
            made=op,
            producer="mma",
            consumers=("compute",),
            layout=value.as_tile,
            produced_in=op.index if isinstance(op, ForTiles) else None,
            consumed_in=None,
            space="TMEM",
            ring=ring,
            depth="sums",
        )
        for op in makers
        for value in results_of(op)
    ]
    places = [i for i, op in enumerate(body) if op in makers]
    return (SlotGroup(body, places[0], places[-1], edges),)


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
    return max(1, min(BUFFERED, COLUMNS // max(1, slot_columns(kernel, sizes))))


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
        if computed_operands(kernel, op):
            yield Finding(f"a computed operand of `@` {told}", op.loc, elsewhere)
    zeros = tiles_of_zeros(kernel.body)
    for op in output_nest(kernel)[1]:
        if multiplies(op):
            yield from _unfit_maker(op, zeros, told, elsewhere)


def _unfit_maker(op: Op, zeros: set[Value], told: str, elsewhere: str) -> Iterator[Finding]:
    """A product of a tile, or a loop that does nothing but add products to sums."""
    if isinstance(op, Contract):
        if op.acc is not None and op.acc not in zeros:
            yield Finding(f"a product that is added to another value {told}", op.loc, elsewhere)
        return
    if not isinstance(op, ForTiles):
        yield Finding(f"a product in a condition or in `each` {told}", op.loc, elsewhere)
        return
    if walks_a_part(op):
        yield Finding(f"a sum over a part of a dimension {told}", op.loc, elsewhere)
    products = {inner.result: inner for inner in op.body if isinstance(inner, Contract)}
    for inner in op.body:
        scalar = isinstance(inner, (Block, Constant, DimSize, Map)) and not (
            isinstance(inner, Map) and _is_tile(inner.result)
        )
        if isinstance(inner, Store) or regions(inner):
            what = "a store beside products of a loop" if isinstance(inner, Store) else "a loop"
            yield Finding(f"{what} in a loop with products {told}", inner.loc, elsewhere)
        elif not scalar and not isinstance(inner, (Contract, Load, Yield)):
            yield Finding(
                f"what a loop computes of its products, or beside them, {told}",
                inner.loc,
                elsewhere,
            )
    loads = {inner.result for inner in op.body if isinstance(inner, Load)}
    taken = {v for product in products.values() for v in (product.a, product.b)}
    for inner in op.body:
        others = {*operands(inner), *used_inside(inner)} & (loads - taken)
        if others:
            yield Finding(f"what a loop computes beside its products {told}", inner.loc, elsewhere)
    for first, arg, last in zip(op.init, op.args, yielded(op.body), strict=True):
        product = products.get(last)
        if product is None or product.acc != arg or first not in zeros:
            at = product.loc if product else op.loc
            yield Finding(f"a loop that carries more than sums from zeros {told}", at, elsewhere)


def _is_tile(value: Value) -> bool:
    return isinstance(value.type, Tile) and bool(value.type.axes)
