"""What a load partition will load first is asked of L2 while the kernel in front still runs.

    for_range(index=%work, start=%cta, stop=%num_work, step=%num_ctas, ...) {
      %n: i32 = map(fn="mul", args=(%work, %c128))
      for_range(index=%k, start=%c0, stop=%end, step=%c64, ...) {
        wait_barrier(barriers=%empty, state=%s2)
        tma_load(map=%b_map, coordinates=(%n, %k), shared=%slots, state=%s2, barriers=%full)
        ...

of which two iterations are asked for:

    %any: bool = map(fn="lt", args=(%cta, %num_work))
    if(cond=%any) {
      %n1: i32 = map(fn="mul", args=(%cta, %c128))
      %until: i32 = map(fn="min", args=(%c128, %end))
      for_range(index=%k1, start=%c0, stop=%until, step=%c64) {
        prefetch_box(map=%b_map, coordinates=(%n1, %k1))
      }
    }

Nothing is promised for that, as it is by `Schedule.constant`: whatever the kernel in front writes
to a box, L2 has it when it is loaded. Memory is busy while kernels end and begin, and what comes
first comes sooner. Boxes whose place is read from memory are not asked for.
"""

from __future__ import annotations

from collections.abc import Iterable

from wsdsl.ir.barrier_ops import ClusterIndex, CtaIndex, CtaRank, ForRange, NumClusters, NumCtas
from wsdsl.ir.memory_ops import TmaLoad
from wsdsl.ir.op import Op, Region, Value, operands, results_of, with_fields
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.prefetch_ops import PrefetchBox
from wsdsl.ir.tile_ops import Constant, DimSize, Map
from wsdsl.ir.walk import Namer, copy_region, makers
from wsdsl.lowering.builder import Builder

SCALARS = Constant | DimSize | Map | CtaIndex | NumCtas | ClusterIndex | NumClusters | CtaRank


def first_boxes(partition: Partition, namer: Namer) -> Region:
    """Of the first tile, those of `partition.asks_early` iterations; none where that can not be
    said in front of its loops.
    """
    items = _loop(partition.body)
    loop = _loop(items.body) if items else None
    if items is None or loop is None:
        return ()
    loads = [op for op in loop.body if isinstance(op, TmaLoad)]
    places = tuple(v for op in loads for v in op.coordinates)
    inside = makers(loop.body, places)
    wanted = loop.start, loop.stop, loop.step, *places, *_read(inside)
    around = makers(items.body, wanted)
    wanted = items.start, items.stop, *wanted, *_read(around)
    scalars = makers(partition.body, wanted)
    known = all(isinstance(op, SCALARS) for op in (*scalars, *around, *inside))
    if not (loads and known) or {*items.args, *loop.args} & {*wanted}:
        return ()
    return _asked(partition.asks_early, items, loop, loads, (scalars, around, inside), namer)


def _asked(
    iterations: int,
    items: ForRange,
    loop: ForRange,
    loads: Iterable[TmaLoad],
    computed: tuple[Region, Region, Region],
    namer: Namer,
) -> Region:
    """`computed`: what coordinates are made of in front of the loops, in the outer, the inner."""
    b, swap, (scalars, around, inside) = Builder(namer), dict[Value, Value](), computed
    b.loc = loop.loc

    def again(region: Region) -> None:
        copied = copy_region(region, namer, swap)
        for before, after in zip(region, copied, strict=True):
            swap.update(zip(results_of(before), results_of(after), strict=True))
        b.ops += copied

    def now(value: Value) -> Value:
        return swap.get(value, value)

    again(scalars)
    with b.when(b.map("lt", now(items.start), now(items.stop), wish="any")):
        swap[items.index] = now(items.start)
        again(around)
        start, step = now(loop.start), now(loop.step)
        far = b.map("mul", step, b.integer(iterations), wish="early")
        until = b.map("min", b.plus(start, far), now(loop.stop), wish="until")
        swap[loop.index] = index = b.value(loop.index.name, loop.index.type)
        with b.region() as body:
            again(inside)
            for op in loads:
                at = tuple(map(now, op.coordinates))
                b.add(PrefetchBox(map=op.map, coordinates=at, loc=op.loc))
        own = ForRange(result=(), index=index, start=start, stop=until, step=step, body=tuple(body))
        b.add(with_fields(own, loc=loop.loc))
    return tuple(b.ops)


def _loop(region: Region) -> ForRange | None:
    return next((op for op in region if isinstance(op, ForRange)), None)


def _read(region: Iterable[Op]) -> tuple[Value, ...]:
    return tuple(v for op in region for v in operands(op))
