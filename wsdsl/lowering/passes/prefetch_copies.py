"""Prefetch copies of threads to L2, some stages ahead and for the next item (SCHEDULED).

Before:
    %s5 = for_range(index=%work, start=%cta, stop=%num_work, step=%num_ctas, ...) {
      %m: i32 = map(fn="mul", args=(%work, %c64))
      %s3 = for_range(index=%k, start=%c0, stop=%end, step=%c64, init=(%s1,), args=(%s2,)) {
        mbarrier_wait(barriers=%empty, state=%s2)
        thread_load(tensor=%A, coordinates=(%m, %k), row_dim=0, rows=64, columns=64, ...)
        ...
      }
After:
      %first: bool = map(fn="eq", args=(%work, %cta))
      if(cond=%first) {
        ... for_range(index=%k1, start=%c64, stop=%until, step=%c64) {
          prefetch_tile(tensor=%A, coordinates=(%m, %k1), row_dim=0, rows=64, columns=64)
        }
      }
      %next: i32 = map(fn="add", args=(%work, %num_ctas))
      %more: bool = map(fn="lt", args=(%next, %num_work))
      if(cond=%more) {
        %m1: i32 = map(fn="mul", args=(%next, %c64))
        ... for_range(index=%k2, start=%c0, stop=%until1, step=%c64) {
          prefetch_tile(tensor=%A, coordinates=(%m1, %k2), row_dim=0, rows=64, columns=64)
        }
      }
      %s3 = for_range(index=%k, ...) {
        %ahead: i32 = map(fn="add", args=(%k, %c512))
        %goes_on: bool = map(fn="lt", args=(%ahead, %end))
        if(cond=%goes_on) {
          prefetch_tile(tensor=%A, coordinates=(%m, %ahead), row_dim=0, rows=64, columns=64)
        }
        mbarrier_wait(barriers=%empty, state=%s2)
        ...
      }

Threads have loads in flight in registers, a few KB of a stage, and wait for them before the next
loads. A load from L2 takes a third of the time of one from memory. TMA needs no prefetch, since it
has copies to all free stages in flight. Threads with few registers have none for the addresses
(`Partition.copies_ahead`); the kernel is then limited by MMAs.

Why here: copies are separate ops, with the index of the loop in their coordinates.
"""

from collections.abc import Mapping
from typing import Any

from wsdsl.ir.op import Kernel, Op, Region, Value, bound, operands, results_of, with_fields
from wsdsl.ir.ops import (
    Constant,
    DimSize,
    ForRange,
    Map,
    Partition,
    PrefetchTile,
    ThreadLoad,
    with_partitions,
)
from wsdsl.ir.rewriter import Namer, makers, with_regions
from wsdsl.lowering.builder import INT, Builder

AHEAD_BYTES = 24 << 10
"""Bytes that memory delivers to an SM in 0.7 us. With 64 KB, 26 shapes take 4 % longer on
average.
"""
MOST_SLOTS = 16
"""The most stages ahead, which limits stages of less than 1.5 KB to fewer than `AHEAD_BYTES`."""


def prefetch_copies(kernel: Kernel) -> Kernel:
    if not kernel.of(ThreadLoad):
        return kernel
    namer, made = Namer.of(kernel), kernel.definers

    def region(before: Region, items: ForRange | None = None) -> Region:
        after: list[Op] = []
        for op in before:
            around = op if isinstance(op, ForRange) else None
            op = with_regions(op, lambda inner, around=around: region(inner, around))
            copies = _copies(op) if isinstance(op, ForRange) else []
            if not (isinstance(op, ForRange) and copies):
                after.append(op)
            elif isinstance(step := made.get(op.step), Constant):
                after += _Ahead(Builder(namer), op, copies, int(step.value)).of(items)
            elif items is not None:
                # Concurrent splits have one CTA each.
                after += _Ahead(Builder(namer), op, copies, None).of(None)
            else:
                after.append(op)
        return tuple(after)

    def partition(op: Partition) -> Partition:
        return with_fields(op, body=region(op.body)) if op.copies_ahead else op

    return with_partitions(kernel, partition)


def _copies(loop: ForRange) -> list[ThreadLoad]:
    """Those that go on along the loop's index, and are elsewhere for nothing else in the loop."""
    inside = {v for op in loop.body for v in (*results_of(op), *bound(op))} | {*loop.args}
    along = (x for x in loop.body if isinstance(x, ThreadLoad) and loop.index in x.coordinates)
    return [op for op in along if not inside & {*op.coordinates}]


class _Ahead:
    def __init__(
        self, b: Builder, loop: ForRange, copies: list[ThreadLoad], step: int | None
    ) -> None:
        self.b, self.loop, self.copies, self.step = b, loop, copies, step
        size = sum(c.tensor.as_tensor.dtype.size(c.rows * c.columns) for c in copies)
        self.slots = min(MOST_SLOTS, -(-AHEAD_BYTES // size))
        b.loc = loop.loc

    def of(self, items: ForRange | None) -> list[Op]:
        """Return the loop, after its first prefetches; `items` is the loop around it."""
        b, loop = self.b, self.loop
        chain = None if items is None else self.chain(items)
        with b.region() as own:
            self.first_slots(self.copies, {}, skipped=1)
        if items is None or chain is None:
            b.ops += own
        else:
            with b.when(b.map("eq", items.index, items.start, wish="first")):
                b.ops += own
            if moved := self.moved(items, chain):
                self.next_item(items, chain, moved)
        with b.region() as inside:
            further = self.further(self.slots)
            there = b.plus(loop.index, further, "ahead")
            then = tuple(_prefetch(copy, {loop.index: there}) for copy in self.copies)
            near, far = there, loop.stop
            if isinstance(further, Value):
                # The index `far` of many stages could overflow after the largest size.
                near, far = further, b.map("sub", loop.stop, loop.index, wish="left")
            with b.when(b.map("lt", near, far, wish="goes_on")):
                b.ops += then
        return [*b.ops, with_fields(loop, body=(*inside, *loop.body))]

    def moved(self, items: ForRange, chain: Region) -> list[ThreadLoad]:
        """Copies that are elsewhere for another item; the others have just been made."""
        vary = {items.index}
        for op in chain:
            if vary & {*operands(op)}:
                vary |= {*results_of(op)}
        if vary & {self.loop.start, self.loop.stop}:
            return self.copies
        return [copy for copy in self.copies if vary & {*copy.coordinates}]

    def next_item(self, items: ForRange, chain: Region, moved: list[ThreadLoad]) -> None:
        b = self.b
        following = b.plus(items.index, items.step, "next")
        with b.when(b.map("lt", following, items.stop, wish="more")):
            swap = {items.index: following}
            b.copy(chain, swap)
            computed = (v for op in chain for v in results_of(op))
            self.first_slots(moved, {v: swap[v] for v in computed})

    def first_slots(
        self, copies: list[ThreadLoad], swap: Mapping[Value, Value], skipped: int = 0
    ) -> None:
        """Of the item whose values `swap` gives for this one's."""
        b, loop = self.b, self.loop
        start, stop = swap.get(loop.start, loop.start), swap.get(loop.stop, loop.stop)
        until = self.until(start, stop)
        index = b.value(f"{loop.index.name}_early", INT)
        start = b.plus(start, self.further(skipped), "second")
        run = dict[str, Any](index=index, start=start, stop=until, step=loop.step)
        body = tuple(_prefetch(copy, {**swap, loop.index: index}) for copy in copies)
        b.add(ForRange(result=(), **run, body=body, loc=loop.loc))

    def until(self, start: Value, stop: Value) -> Value:
        """Return the end of the prefetched stages, at most the end of the loop."""
        b, further = self.b, self.further(self.slots)
        if not isinstance(further, Value):
            return b.map("min", b.plus(start, further, "later"), stop, wish="until")
        left = b.map("sub", stop, start, wish="left")
        return b.plus(start, b.map("min", further, left, wish="within"), "until")

    def further(self, iterations: int) -> int | Value:
        """Return the elements of this number of iterations of the loop."""
        if self.step is not None or not iterations:
            return iterations * (self.step or 0)
        return self.b.times(self.loop.step, iterations, "further")

    def chain(self, items: ForRange) -> Region | None:
        """Return the ops of an item for the coordinates of its tiles; None if another item cannot
        repeat them.
        """
        wanted = {v for copy in self.copies for v in copy.coordinates} - {self.loop.index}
        wanted |= {self.loop.start, self.loop.stop}
        ops = makers(items.body, wanted)
        carried = {*items.args} & {*wanted, *(v for op in ops for v in operands(op))}
        may = all(isinstance(op, (Constant, DimSize, Map)) for op in ops)
        return ops if may and not carried else None


def _prefetch(copy: ThreadLoad, swap: Mapping[Value, Value]) -> PrefetchTile:
    """Prefetch a copy. Rows may end in a line with none of the prefetched bytes: a prefetch of that
    line does not pay if the next stage begins there.
    """
    at = tuple(swap.get(v, v) for v in copy.coordinates)
    box = dict[str, Any](row_dim=copy.row_dim, rows=copy.rows, columns=copy.columns)
    return PrefetchTile(tensor=copy.tensor, coordinates=at, **box, loc=copy.loc)
