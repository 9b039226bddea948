"""Split the kernel into partitions: loads of MMA operands, and the rest (TILE to PARTITIONED).

Before:
    for_tiles(index=%m: axis<m of M by 128 rows>) {
      for_tiles(index=%n: axis<n of N by 256 columns>) {
        %acc = for_tiles(index=%k: axis<k of K by 64>, init=(%zeros,), args=(%x: f32[m, n],)) {
          %a = load(tensor=%A, index=(%m, %k))
          %b = load(tensor=%B, index=(%n, %k))
          %y = contract(a=%a, b=%b, acc=%x)
          yield(values=(%y,))
        }
        store(tensor=%C, index=(%m, %n), value=%acc)
After:
    %ring = pipeline(depth=4, layouts=((bf16[m, k], bf16[n, k]),))
    partition(role="load") {
      for_work(index=(%m, %n), dims=("M", "N")) {
        for_tiles(index=%k) {
          %slot = producer_acquire(ring=%ring)
          load_to_slot(slot=%slot, field=0, tensor=%A, index=(%m, %k))
          load_to_slot(slot=%slot, field=1, tensor=%B, index=(%n, %k))
          producer_commit(slot=%slot)
        }
      }
    }
    partition(role="compute", num_warps=8) {
      for_work(index=(%m, %n), dims=("M", "N")) {
        %acc = for_tiles(index=%k, init=(%zeros,), args=(%x,)) {
          %slot = consumer_wait(ring=%ring)
          %a = slot_tile(slot=%slot, field=0)
          %b = slot_tile(slot=%slot, field=1)
          %y = contract(a=%a, b=%b, acc=%x)
          consumer_release(slot=%slot)
          yield(values=(%y,))
        }
        store(tensor=%C, index=(%m, %n), value=%acc)

If only some of the tensors are in `Schedule.pdl_independent`, there are two load partitions with
the same loops: the partition of these tensors need not wait for the previous kernel. Both take
every stage of a pipeline that has fields of both, and fill their fields. (The thread that loads
epilogue operands in parts always waits.)

With `mode="pingpong"` there are as many compute partitions as consumers, in ping-pong: each
computes every second tile and skips the stages of the others.

If accumulators are in TMEM, the compute partition is split again (`product_slices.py`): one thread
issues MMAs, and others read the accumulators in stages. Scale factors that threads write to TMEM
(`made_slices.py`) are loaded by another thread, before the operands.

The load sub-DAG is the backward slice from the operands of MMAs to GMEM. It has a separate loop
nest, of the loops around its loads (`warp_specialization.py`). Loads for elementwise work alone
stay in the compute partition; threads read operands in their stage (`slot_elements`).

Why here: on tiles, before values have addresses; the same passes lower both partitions.
"""

import dataclasses
from typing import Any

from wsdsl.ir.op import Kernel, Region, Value
from wsdsl.ir.ops import DimLoop, ForTiles, ForWork, Partition, Pipeline, Yield, with_tails
from wsdsl.ir.plan import Plan
from wsdsl.ir.rewriter import Namer, copy_region
from wsdsl.ir.types import Axis, Ring
from wsdsl.lowering.axes import bounds_of, groups_of, output_nest, ragged_loop
from wsdsl.lowering.batch_coarsening import taken_in_turns
from wsdsl.lowering.buffer_assignment import SlotGroup, layouts_of, operand_slots
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.cooperation import cluster_along, num_cooperating, num_pingpong_consumers
from wsdsl.lowering.decode import num_decoders
from wsdsl.lowering.early_loads import (
    loaded_tensors,
    refuse_addresses_in_memory,
    refuse_written_addresses,
)
from wsdsl.lowering.epilogue_operands import epilogue_slots
from wsdsl.lowering.made_slices import DecodeSlice, ScaleSlice
from wsdsl.lowering.passes.dce import without_unused
from wsdsl.lowering.product_slices import TensorSlice
from wsdsl.lowering.tmem_accumulators import given_back_late, multiplying_warps, sum_slots
from wsdsl.lowering.tmem_scales import scale_block, stores_scales
from wsdsl.lowering.warp_specialization import ConsumerSlice, ProducerSlice, SkippedSlice


def partition_loads(kernel: Kernel) -> Kernel:
    assert kernel.plan is not None
    plan, schedule, namer = kernel.plan, kernel.plan.schedule, Namer.of(kernel)
    body = output_nest(kernel)[1]
    groups, in_parts = operand_slots(kernel), epilogue_slots(kernel, schedule)
    sums = sum_slots(kernel)
    declared = _declare(plan, (*groups, *in_parts, *sums), namer)
    rings = {ring: op.result for ring, op in declared.items()}
    filled_by = ProducerSlice(kernel, groups, rings, namer)
    num_pingpong = num_pingpong_consumers(schedule)

    def partition(role: str, work: ForWork, num_warps: int = 4) -> Partition:
        return Partition(
            role=role,
            num_warps=num_warps,
            share=plan.shared if role == "compute" else "rows",
            registers=plan.registers(role) if num_warps > 1 else 0,
            staging=max(1, plan.staging) if role == "compute" else 1,
            in_order=plan.in_order,
            late_loads=plan.late_loads and role == "compute",
            order_barriers=plan.order_barriers and role == "compute",
            copies_ahead=plan.copies_ahead and role == "load" and num_warps > 1,
            asks_early=plan.asks_early if role == "load" and num_warps > 1 else (),
            body=copy_region((work,), namer) if role != "compute" or num_pingpong > 1 else (work,),
            loc=kernel.loc,
        )

    partitions: list[Partition] = []
    for planned in plan.loads:
        side = filled_by.of(body, planned.tensors)
        refuse_written_addresses(kernel, side)
        refuse_addresses_in_memory(side, planned.tensors, schedule)
        partitions.append(partition("load", _work(kernel, namer, side), planned.num_warps))
    skip = SkippedSlice(kernel, groups, rings, namer).of(body)
    if scales := loaded_tensors(g for g in groups if g.consumer == "scale"):
        # A thread of its own: scales have a way to go when operands are there.
        partitions.append(
            partition("load", _work(kernel, namer, filled_by.of(body, scales)), num_warps=1)
        )
    if in_parts:
        # A separate thread, independent of the stages of MMA operands.
        side = ProducerSlice(kernel, in_parts, rings, namer).of(body, loaded_tensors(in_parts))
        partitions.append(partition("load", _work(kernel, namer, side), num_warps=1))
        skip += SkippedSlice(kernel, in_parts, rings, namer).of(body)
    if num_decoders(kernel):
        side = DecodeSlice(kernel, groups, rings, namer).of(body)
        partitions.append(partition("decode", _work(kernel, namer, side)))
    if stores_scales(groups):
        side = ScaleSlice(kernel, groups, rings, namer).of(body)
        partitions.append(partition("scale", _work(kernel, namer, side)))
    for index in range(num_pingpong):
        if sums:
            own, side = TensorSlice(kernel, filled_by, sums, namer).cut(body)
            multiplying = partition("mma", _work(kernel, namer, own), multiplying_warps(kernel))
            # In addition to the thread that loads.
            partitions.insert(len(plan.loads), multiplying)
        else:
            side = ConsumerSlice(filled_by, in_parts, index, num_pingpong).of(body)
        work = _work(kernel, namer, without_unused(side))
        if num_pingpong > 1:
            in_turn = dict[str, Any](pingpong_index=index, num_pingpong=num_pingpong, skip=skip)
            work = dataclasses.replace(work, **in_turn)
        partitions.append(partition("compute", work, 4 * num_cooperating(schedule)))
    late = {rings[number] for number in given_back_late(kernel, groups, sums)}
    body = (*declared.values(), *(with_tails(op, late) for op in partitions))
    return dataclasses.replace(kernel, level="partitioned", body=body)


def _work(kernel: Kernel, namer: Namer, side: Region) -> ForWork:
    """Return the loop over output tiles with the `side` of a partition as its body."""
    assert kernel.schedule is not None
    nest, schedule = output_nest(kernel)[0], kernel.schedule
    loop, ragged, groups = taken_in_turns(kernel), ragged_loop(kernel), groups_of(kernel)
    num = (schedule.tile or {}).get(loop.index.name, 1) if loop else 1
    # Next to each other, as they mostly lie in memory.
    nest = sorted(nest, key=lambda each: (each not in groups, num > 1 and each is loop))
    within = tuple(loop.within if isinstance(loop, ForTiles) else 0 for loop in nest)
    return ForWork(
        index=tuple(loop.index for loop in nest),
        dims=tuple(loop.dim for loop in nest),
        scheduler=schedule.scheduler or "persistent",
        swizzle=schedule.swizzle or 1,
        raster=schedule.raster or "",
        cluster=tuple(cluster_along(schedule, _name(loop)) for loop in nest),
        within=within if any(within) else (),
        turn=loop.index.name if loop and num > 1 else "",
        turns=num,
        **(_ragged(kernel, ragged, namer) if ragged else {}),
        body=side,
        loc=nest[0].loc if nest else kernel.loc,
    )


def _ragged(kernel: Kernel, loop: ForTiles, namer: Namer) -> dict[str, Any]:
    """Return the fields of `for_work` for a ragged loop."""
    b, axis, ends = Builder(namer), loop.index.as_axis, dict[Value, Value]()
    b.copy(bounds_of(kernel), ends)
    start, stop, first = (x and ends.get(x, x) for x in (loop.start, loop.stop, loop.first))
    values = start or b.integer(0), stop or b.size(axis.dim), *((first,) if first else ())
    b.add(Yield(values=values, loc=loop.loc))
    flags = dict(clipped=loop.clipped, shifted=loop.shifted)
    groups = len(groups_of(kernel))
    return dict(ragged=axis.name, groups=groups, bounds=tuple(b.ops), **flags)


def _name(loop: DimLoop) -> str:
    return loop.index.type.name if isinstance(loop.index.type, Axis) else loop.index.name


def _declare(plan: Plan, groups: tuple[SlotGroup, ...], namer: Namer) -> dict[int, Pipeline]:
    """Declare the pipelines, by number."""
    layouts = layouts_of(groups)
    return {
        ring.number: Pipeline(
            result=Value(namer.new(ring.name), Ring()),
            depth=ring.depth,
            layouts=tuple(layouts[ring.number]),
            consumers=ring.num_consumers,
            parts=ring.size.subtiles,
            space="TMEM" if ring.size.columns else "SMEM",
            block=scale_block(groups, ring.number),
            loc=next((g.loc for g in groups if ring.size.subtiles and g.ring == ring.number), None),
        )
        for ring in plan.rings
    }
