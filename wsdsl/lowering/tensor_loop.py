"""Loops whose products are made of other products' results, on tensor memory: the thread that
multiplies starts those of the next iteration before it waits for what threads make of this one's.

Before, of the partition that multiplies:
    for_range(index=%t, start=%c0, stop=%T, step=%c64, ...) {
      ... %s = contract(a=%q, b=%k) ...             first stage
      %made = consumer_wait(ring=%p_ring)
      ... %y = contract(a=%p, b=%v) ...             second stage
    }
After:
    if(cond=%some) { ... %s0 = contract(a=%q, b=%k0) ... }
    for_range(index=%t, start=%c0, stop=%T, step=%c64, ...) {
      %next = map(fn="add", args=(%t, %c64))
      if(cond=%more) { ... %s1 = contract(a=%q, b=%k1) ... }
      %made = consumer_wait(ring=%p_ring)
      ... %y = contract(a=%p, b=%v) ...
    }

The tensor cores have the next scores while threads make an operand of these. A slot of a ring is
taken in one stage alone, so that the slots of each ring come in their old order; and threads read
the next sums before they wait for the last products of an iteration or behind it, so that one slot
of each ring is enough.
"""

from __future__ import annotations

from collections.abc import Iterable

from wsdsl.ir.barrier_ops import ForRange
from wsdsl.ir.op import Kernel, Op, Region, Value, operands, results_of, with_fields
from wsdsl.ir.pipeline_ops import AxisAt, CircularBuffer, Partition
from wsdsl.ir.slot_ops import ConsumerWait, ProducerAcquire, StoreToSlot
from wsdsl.ir.tile_ops import Block, Constant, Contract, DimSize, End, If, Map, Yield
from wsdsl.ir.walk import copy_region, following, makers, used_inside, walk, yielded
from wsdsl.lowering.axes import is_tile
from wsdsl.lowering.builder import Builder

TAKES = (ConsumerWait, ProducerAcquire)
SHARED = (AxisAt, Block, Constant, DimSize, End, Map)
"""What both stages may compute, each for itself."""


def made_rings(kernel: Kernel) -> frozenset[Value]:
    """Of operands that threads make of sums in tensor memory."""
    sums = {op.result for op in kernel.of(CircularBuffer) if op.space == "TMEM"}
    found = set[Value]()
    for own in kernel.of(Partition):
        if own.role == "compute" and sums & _rings(own.body):
            slots = {op.slot for op in walk(own.body) if isinstance(op, StoreToSlot)}
            taken = (op for op in walk(own.body) if isinstance(op, ProducerAcquire))
            found |= {op.ring for op in taken if op.result in slots}
    return frozenset(found)


def _rings(ops: Iterable[Op]) -> set[Value]:
    return {op.ring for op in walk(tuple(ops)) if isinstance(op, TAKES)}


def turned_products(loop: ForRange, made: frozenset[Value], builder: Builder) -> Region | None:
    """The loop of the thread that multiplies, written anew; None where it stays as it is."""
    stages = _stages(loop, made)
    if stages is None:
        return None
    first, second = stages
    b, body = builder, loop.body[:-1]
    b.loc = loop.loc

    def start(index: Value, cond: Value) -> If:
        then = copy_region(first, b.namer, {loop.index: index})
        return If(cond=cond, then=(*then, Yield()), orelse=(Yield(),), loc=loop.loc)

    with b.region() as ops:
        some = b.map("lt", loop.start, loop.stop, wish="some")
        b.add(start(loop.start, some))
        with b.region() as inner:
            coming = b.plus(loop.index, loop.step, "next")
            more = b.map("lt", coming, loop.stop, wish="more")
            b.add(start(coming, more))
            b.ops += (op for op in body if op in second)
        b.add(with_fields(loop, body=(*inner, loop.body[-1])))
    return tuple(ops)


def _stages(loop: ForRange, made: frozenset[Value]) -> tuple[Region, Region] | None:
    """What is started an iteration ahead, and what is not; both may compute the same numbers."""
    body = loop.body[:-1]
    waits = [
        op
        for op in body
        if any(isinstance(x, ConsumerWait) and x.ring in made for x in walk((op,)))
    ]
    second = {*waits} | following(body, (v for op in waits for v in results_of(op)))
    grown = bool(second)
    while grown:
        before = len(second)
        for op in body:
            if isinstance(op, TAKES) and op not in second:
                users = following(body, (op.result,))
                second |= {op, *users} if users & second else set()
        grown = len(second) > before
    shared = {op for op in body if isinstance(op, SHARED) and not any(map(is_tile, results_of(op)))}
    first = [op for op in body if op not in second]
    if not any(isinstance(op, Contract) for op in walk(tuple(first))) or not second:
        return None
    used = {v for op in second for v in (*operands(op), *used_inside(op))}
    # Where a tile lies is what the last `axis_at` of its axis says, which no operand names.
    both = {*makers(tuple(first), used), *(op for op in first if isinstance(op, AxisAt))}
    carried = {*loop.args, *yielded(loop.body)}
    apart = [op for op in first if op not in shared]
    touched = {v for op in apart for v in (*operands(op), *used_inside(op), *results_of(op))}
    if not both <= shared or _rings(first) & _rings(second) or touched & carried:
        return None
    return tuple(first), tuple(op for op in body if op in second or op in both)
