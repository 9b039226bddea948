"""What the thread that multiplies does of a kernel's body, and what is left to compute, where sums
cross between them in slots of tensor memory.

Before:
    %acc = for_tiles(index=%k, init=(%zeros,), ...) { ... contract ... }
    store(tensor=%C, index=(%m, %n), value=%acc)
After, of the partition "mma":
    %slot = producer_acquire(ring=%sum_ring)
    %acc = for_tiles(index=%k, init=(%zeros,), ...) { ... contract ... }
    sum_to_slot(slot=%slot, field=0, value=%acc)
    producer_commit(slot=%slot)
and of the partition "compute":
    %slot_1 = consumer_wait(ring=%sum_ring)
    %acc: f32[m, n] = slot_sum(slot=%slot_1, field=0, started=%any)
    store(tensor=%C, index=(%m, %n), value=%acc)
    consumer_release(slot=%slot_1)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wsdsl.ir.op import Op, Region, Value, results_of
from wsdsl.ir.slot_ops import (
    ConsumerRelease,
    ConsumerWait,
    CopyScales,
    ProducerAcquire,
    ProducerCommit,
    SlotSum,
    SlotTile,
    SumToSlot,
)
from wsdsl.ir.tile_ops import Constant, Contract, DimSize, ForEach, ForTiles, Map, Store
from wsdsl.ir.types import BOOL, I32, DType, Slot, Tile
from wsdsl.ir.walk import Namer, walk, yielded
from wsdsl.lowering.passes.drop_unused import without_unused
from wsdsl.lowering.slots import SlotGroup
from wsdsl.lowering.tensor_sums import multiplies

OF_OPERANDS = (ConsumerWait, ConsumerRelease, CopyScales, SlotTile)


def product_slice(body: Region, sums: SlotGroup, ring: Value, namer: Namer) -> Region:
    """Of a body whose loads are slots that were waited for."""
    slot = Value(namer.new("slot"), Slot())
    made = list[Op]()
    left = sum(map(multiplies, body))
    for op in body:
        if not multiplies(op):
            made += [] if _stores(op) else [op]
            continue
        if not any(isinstance(o, ProducerAcquire) for o in made):
            made.append(ProducerAcquire(result=slot, ring=ring, loc=sums.loc))
        made.append(op)
        left -= 1
        if not left:
            fields = enumerate(sums.edges)
            made += (SumToSlot(slot=slot, field=n, value=e.values[0]) for n, e in fields)
            made.append(ProducerCommit(slot=slot, loc=op.loc))
    return without_unused(tuple(made))


def compute_slice(
    body: Region, sums: SlotGroup, ring: Value, namer: Namer, sizes: Mapping[str, int]
) -> Region:
    """The rest of it."""
    slot = Value(namer.new("slot"), Slot())
    fields = {edge.values[0]: n for n, edge in enumerate(sums.edges)}
    started = _Started(namer, sizes)
    for op in body:
        if isinstance(op, OF_OPERANDS):
            continue
        if not multiplies(op):
            started.ops.append(op)
            continue
        if not any(isinstance(o, ConsumerWait) for o in started.ops):
            started.ops.append(ConsumerWait(result=slot, ring=ring, loc=sums.loc))
        started.behind(op)
        for value in results_of(op):
            if value in fields:
                where = dict[str, Any](slot=slot, field=fields[value], loc=op.loc)
                known = started.flags[value]
                started.ops.append(SlotSum(result=value, started=known, **where))
    return without_unused((*started.ops, ConsumerRelease(slot=slot, loc=sums.loc)))


class _Started:
    """Whether products were added to sums: `flags`, None where they were in any case. What computes
    that goes to `ops`.
    """

    def __init__(self, namer: Namer, sizes: Mapping[str, int]) -> None:
        self.namer, self.sizes = namer, sizes
        self.ops: list[Op] = []
        self.flags: dict[Value, Value | None] = {}

    def map(self, fn: str, *args: Value) -> Value:
        made = Value(self.namer.new("any"), Tile(BOOL))
        self.ops.append(Map(result=made, fn=fn, args=args))
        return made

    def behind(self, op: Op) -> None:
        """The results of a product, or of a loop with some."""
        if isinstance(op, Contract):
            self.flags[op.result] = None
            return
        assert isinstance(op, (ForTiles, ForEach))
        runs = self.map("gt", self.size(op.dim), self.constant(0, I32))
        for first, arg, last, made in zip(
            op.init, op.args, yielded(op.body), op.result, strict=True
        ):
            inside = self.within(op.body, arg, last)
            own = runs if inside is None else self.map("and", runs, inside)
            known = self.flags.get(first, own)
            if first in self.flags and known is not None:
                known = self.map("or", known, own)
            self.flags[made] = known

    def within(self, body: Region, arg: Value, last: Value) -> Value | None:
        """Whether an iteration adds to what it carries."""
        found: Value | None = self.constant(False, BOOL)
        value = last
        while value != arg:
            op = next(o for o in body if value in results_of(o))
            if isinstance(op, Contract):
                return None
            assert isinstance(op, (ForTiles, ForEach))
            at = op.result.index(value)
            runs = self.map("gt", self.size(op.dim), self.constant(0, I32))
            inside = self.within(op.body, op.args[at], yielded(op.body)[at])
            own = runs if inside is None else self.map("and", runs, inside)
            found, value = self.map("or", found, own), op.init[at]
        return found

    def constant(self, value: int | bool, dtype: DType) -> Value:
        made = Value(self.namer.new("c"), Tile(dtype))
        self.ops.append(Constant(result=made, value=value))
        return made

    def size(self, dim: str) -> Value:
        if dim in self.sizes:
            return self.constant(self.sizes[dim], I32)
        made = Value(self.namer.new(f"size_{dim}"), Tile(I32))
        self.ops.append(DimSize(result=made, dim=dim))
        return made


def _stores(op: Op) -> bool:
    return any(isinstance(inner, Store) for inner in walk((op,)))
