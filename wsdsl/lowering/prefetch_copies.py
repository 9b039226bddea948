"""Bring what threads will copy to L2, some slots ahead.

Before:
    %s3 = for_range(index=%k, start=%begin, stop=%end, step=%c64, init=(%s1,), args=(%s2,)) {
      wait_barrier(barriers=%empty, state=%s2)
      thread_load(tensor=%A, coordinates=(%m, %k), row_dim=0, rows=64, columns=64, ...)
      ...
    }
After:
    %second: i32 = map(fn="add", args=(%begin, %c64))
    %later: i32 = map(fn="add", args=(%begin, %c512))
    %until: i32 = map(fn="min", args=(%later, %end))
    for_range(index=%k_early, start=%second, stop=%until, step=%c64) {
      prefetch_tile(tensor=%A, coordinates=(%m, %k_early), row_dim=0, rows=64, columns=64)
    }
    %s3 = for_range(index=%k, ...) {
      %ahead: i32 = map(fn="add", args=(%k, %c512))
      %goes_on: bool = map(fn="lt", args=(%ahead, %end))
      if(cond=%goes_on) {
        prefetch_tile(tensor=%A, coordinates=(%m, %ahead), row_dim=0, rows=64, columns=64)
      }
      wait_barrier(barriers=%empty, state=%s2)
      ...
    }

Threads hold what is under way in registers, a few KB of a slot, and wait for it before they ask for
more. From L2 it takes a third of the time that it takes from memory (16 x 4096 x 4100 on an H200:
20.2 us instead of 25.4). TMA needs no such thing, since it has all free slots under way. A thread
with few registers has none for the addresses; then products are what takes the time.

Why here: copies are ops of their own, with coordinates that the loop's index is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from wsdsl.ir.barrier_ops import ForRange
from wsdsl.ir.memory_ops import PrefetchTile, ThreadLoad
from wsdsl.ir.op import Kernel, Op, Region, Value, bound, results_of
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.tile_ops import Constant, If
from wsdsl.ir.types import Tensor
from wsdsl.ir.walk import Namer, with_regions
from wsdsl.lowering.builder import INT, Builder

AHEAD_BYTES = 65536
"""Of an SM: what memory brings in 2 us."""
MOST_SLOTS = 16
LEAST_REGISTERS = 56


def prefetch_copies(kernel: Kernel) -> Kernel:
    namer, made = Namer.of(kernel), kernel.definers

    def region(before: Region) -> Region:
        after: list[Op] = []
        for op in before:
            if isinstance(op, Partition) and op.registers and op.registers < LEAST_REGISTERS:
                after.append(op)
                continue
            op = with_regions(op, region)
            copies = _copies(op) if isinstance(op, ForRange) else []
            step = made.get(op.step) if isinstance(op, ForRange) else None
            if isinstance(op, ForRange) and copies and isinstance(step, Constant):
                after += _ahead(Builder(namer), op, copies, int(step.value))
            else:
                after.append(op)
        return tuple(after)

    return dataclasses.replace(kernel, body=region(kernel.body))


def _copies(loop: ForRange) -> list[ThreadLoad]:
    """Those that go on along the loop's index, and are elsewhere for nothing else in the loop."""
    inside = {v for op in loop.body for v in (*results_of(op), *bound(op))} | {*loop.args}
    return [
        op
        for op in loop.body
        if isinstance(op, ThreadLoad)
        and loop.index in op.coordinates
        and not inside & {*op.coordinates}
    ]


def _ahead(b: Builder, loop: ForRange, copies: list[ThreadLoad], step: int) -> list[Op]:
    """The loop, with its first tiles asked for in front of it."""
    slots = min(MOST_SLOTS, -(-AHEAD_BYTES // sum(map(_bytes, copies))))
    b.loc = loop.loc
    later = b.plus(loop.start, slots * step, "later")
    early = b.value(f"{loop.index.name}_early", INT)
    b.add(
        ForRange(
            result=(),
            index=early,
            start=b.plus(loop.start, step, "second"),
            stop=b.map("min", later, loop.stop, wish="until"),
            step=loop.step,
            body=tuple(_prefetch(copy, {loop.index: early}) for copy in copies),
            loc=loop.loc,
        )
    )
    with b.region() as own:
        there = b.plus(loop.index, slots * step, "ahead")
        more = tuple(_prefetch(copy, {loop.index: there}) for copy in copies)
        b.add(If(result=(), cond=b.map("lt", there, loop.stop, wish="goes_on"), then=more))
    return [*b.ops, dataclasses.replace(loop, body=(*own, *loop.body))]


def _bytes(copy: ThreadLoad) -> int:
    assert isinstance(copy.tensor.type, Tensor)
    return copy.rows * copy.columns * copy.tensor.type.dtype.bytes


def _prefetch(copy: ThreadLoad, swap: Mapping[Value, Value]) -> PrefetchTile:
    return PrefetchTile(
        tensor=copy.tensor,
        coordinates=tuple(swap.get(v, v) for v in copy.coordinates),
        row_dim=copy.row_dim,
        rows=copy.rows,
        columns=copy.columns,
        loc=copy.loc,
    )
