"""Pipeline MMAs in loops: keep them in flight during other work, and delay releases (PARTITIONED).

**A loop whose MMAs only add to carried accumulators** leaves them in flight: its stages are
released one iteration later, when no MMA reads them.

Before:
    %acc2 = for_range(index=%k, ..., init=(%acc0,), args=(%acc1,)) {
      %slot = consumer_wait(ring=%ring)
      ...
      %acc3 = contract(a=%a, b=%b, acc=%acc1)
      consumer_release(slot=%slot)
      yield(values=(%acc3,))
    }
    named_barrier_arrive(barrier=2, num_warpgroups=2)
After:
    %none = no_slot(ring=%ring)
    %acc2, %last = for_range(..., init=(%acc0, %none), args=(%acc1, %before: slot)) {
      %slot = consumer_wait(ring=%ring)
      ...
      %begun = contract(a=%a, b=%b, acc=%acc1, blocks=(0, 1))
      %more = map(fn="gt", args=(%k, %zero))
      consumer_release(slot=%before, pred=%more)
      %acc3 = contract(a=%a, b=%b, acc=%begun, blocks=(1, 2))
      yield(values=(%acc3, %slot))
    }
    named_barrier_arrive(barrier=2, num_warpgroups=2)
    %any = map(fn="gt", args=(%stop, %zero))
    consumer_release(slot=%last, pred=%any)

The next MMAs are then issued before the last ones are complete. Half of an iteration's MMAs, by
blocks of 64 rows, are issued before the release, the others after it. In ping-pong the next
partition's MMAs follow this partition's last one. A pipeline with fewer stages than two iterations
need releases them at once.

If operands are transformed in registers, each half of an iteration's MMAs is in flight while the
other half's operand is computed: half of the contraction of a single MMA.

Before:
    consumer_release(slot=%packed_slot)
    %w = cast(x=%packed)
    %acc3 = contract(a=%x, b=%w, acc=%acc1)
    consumer_release(slot=%slot)
After:
    %w = cast(x=%packed)
    %begun = contract(a=%x, b=%w, acc=%acc1, depth=(0, 32))
    commit_products()
    consumer_release(slot=%packed_slot)
    consumer_release(slot=%before, pred=%more)
    %acc3 = contract(a=%x, b=%w, acc=%begun, depth=(32, 64))

Operands are split where MMAs are, and computed when these are issued, so that the second half's
registers are written after the last iteration's MMAs have read them. The loop carries them. A stage
that threads read is released during the first half's MMA: its fence waits for all reads and loads.

**MMAs of fp8 deeper than the promotion interval** (`Schedule.mma_promotion_interval`) are issued in
parts of the contraction, each with separate accumulators: the tensor cores compute the next part
while threads add one in f32, and the wait for a stage of several lines is one.

Before:
    %sum = contract(a=%a, b=%b)
    consumer_release(slot=%slot)
    %total = map(fn="add", args=(%before, %sum))
After:
    %sum1 = contract(a=%a, b=%b, depth=(0, 128))
    commit_products()
    %sum2 = contract(a=%a, b=%b, depth=(128, 256))
    commit_products()
    %before1 = map(fn="add", args=(%before, %sum1))
    materialize(values=(%before1,))
    consumer_release(slot=%slot)
    %total = map(fn="add", args=(%before1, %sum2))

**MMAs whose results are read at once**, as promoted ones are, compute their row blocks one after
another in one accumulator, if all uses are elementwise.

Before:
    %sum = contract(a=%a, b=%b)
    consumer_release(slot=%slot)
    %total = map(fn="fma", args=(%sum, %factor, %before))
After:
    %sum = contract(a=%a, b=%b, in_turns=True)
    %total = map(fn="fma", args=(%sum, %factor, %before))
    materialize(values=(%total,), but_last=True)
    consumer_release(slot=%slot)

A promoted accumulator of 128 x 128 per warpgroup then needs 192 registers, not 256. While one
consumer adds, the tensor cores compute the other's MMA.

**A loop of MMAs with transformed operands** computes the next iteration's operands while the tensor
cores compute this iteration's MMAs.

Before:
    %acc5, %top5 = for_range(index=%t, start=%c0, stop=%size_T, step=%c128, ...) {
      %s = contract(a=%q, b=%k)                          (first link)
      ... %p, %shrink, %top2 of %s and %top1 ...
      %scaled = map(fn="mul", args=(%acc1, %shrink))
      %acc2 = contract(a=%p, b=%v, acc=%scaled)          (last link)
      yield(values=(%acc2, %top2))
    }
After:
    %p0, %scaled0, %top0 = if(cond=(%c0 < %size_T)) { ... of the first iteration ... }
    %acc5, ... = for_range(index=%t, ..., args=(%scaled1, %top1, %p1)) {
      ... = if(cond=(%t + %c128 < %size_T)) {
        %s2 = contract(a=%q, b=%k2)                      (of the next iteration)
        commit_products()
        %acc2 = contract(a=%p1, b=%v, acc=%scaled1)
        commit_products()
        ... %p2, %shrink2, %top2 of %s2 and %top1 ...
        %scaled2 = map(fn="mul", args=(%acc2, %shrink2))
        yield(values=(%scaled2, %top2, %p2))
      } {
        %acc2 = contract(a=%p1, b=%v, acc=%scaled1)
        yield(values=(%acc2, %top1, %p1))
      }
      yield(...)
    }

The loop has two stages. The first computes the operands of an iteration, from other MMAs or from
loads; the second has the MMAs that read them. The second stage of an iteration runs together with
the first stage of the next: MMAs are issued as soon as their operands are ready, first those that
only need pipeline stages, and threads wait for them at the first use of their results. Registers
carry the values between the stages: the transformed operand, and its scaled accumulator.

An iteration is emitted twice if some of its tiles need masks: at the end of the dimension, or where
a `where` selects by the order of two indices (`lowering/loop_stages.py`). Each copy is one block,
so that ptxas can interleave the ops after an MMA (scaling, conversion) with the exponentials.

With `Schedule.order_barriers` consumers of one tile issue these MMAs one after another: each waits
for the consumer before it, and arrives for the next after its MMAs, so that one computes operands
while another's MMAs run (`lowering/order_barriers.py`).

**Factors of accumulators** that threads load without a pipeline are loaded one iteration ahead: no
other work hides the latency of GMEM after the wait for an MMA.

Before:
    %acc3 = for_range(index=%k, start=%c0, ..., step=%c128, init=(%acc0,), args=(%acc1,)) {
      %kb: i32 = block(axis=%kt, size=128)
      %s: f32[m] = load(tensor=%a_scale, index=(%m, %kb))
      %factor: f32[m] = map(fn="mul", args=(%s, %alpha))
      ...
    }
After:
    %s0: f32[m] = load(tensor=%a_scale, index=(%m, %kb0))
    %acc3, %s3 = for_range(..., init=(%acc0, %s0), args=(%acc1, %s1: f32[m])) {
      %factor: f32[m] = map(fn="mul", args=(%s1, %alpha))
      materialize(values=(%factor,))
      %next = map(fn="add", args=(%k, %c128))
      %kt1 = axis_at(start=%next)
      %kb1: i32 = block(axis=%kt1, size=128)
      %s2: f32[m] = load(tensor=%a_scale, index=(%m, %kb1))
      materialize(values=(%s2,))
      ...
    }

Uses of such a load come first, so that the next value can have the same registers. The load after
the last iteration reads zeros outside the tensor, or unused values. Loop-invariant loads are moved
before the loop, and no values are carried that differ by column: they need too many registers in
addition to accumulators. Two consumers load before an MMA is issued, which gives the loads the
longest time (block scale factors on an H200: 0.91 of cuBLAS without scale factors, otherwise 0.78).
Of three consumers, two keep the tensor cores busy, so the third issues its MMA first (0.96,
otherwise 0.86). If threads also read operands in stages, the loads follow the fence before a
release, which waits for all loads in flight. A partition that transforms operands loads such values
in the same way.

A loop with transformed operands is unchanged if its first stage has no MMAs, depends on results of
its second stage, or has loops.

Why here: on tiles, before states of pipelines are carried through the loops.
"""

from wsdsl.diagnostics import ScheduleError
from wsdsl.ir import ops
from wsdsl.ir.hardware.wgmma_shapes import is_fp8
from wsdsl.ir.op import Kernel, Op, Region, regions, with_fields
from wsdsl.ir.rewriter import Namer, rewrite, walk, with_regions
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.loads_ahead import LoadsAhead
from wsdsl.lowering.loop_stages import LoopStages
from wsdsl.lowering.order_barriers import OrderBarriers
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.pipelined_loop import MaskedLoop, PipelinedLoop
from wsdsl.lowering.products_in_flight import InFlight
from wsdsl.lowering.products_in_parts import in_turns, promoted_in_pieces
from wsdsl.lowering.schedule_findings import order_fault
from wsdsl.lowering.tmem_loop import made_rings, turned_products


def schedule_products(kernel: Kernel) -> Kernel:
    builder = Builder(Namer.of(kernel))
    stored = {op.tensor for op in kernel.of(ops.Store)}
    rings = {op.result: op for op in kernel.body if isinstance(op, ops.Pipeline)}
    made = made_rings(kernel)
    every = (kernel.schedule and kernel.schedule.mma_promotion_interval) or 0

    def partition(own: ops.Partition) -> ops.Partition:
        context = PartitionContext(kernel, own, builder)
        known = context.made
        products = [op for op in walk(own.body) if isinstance(op, ops.Contract)]
        blocks = {op: context.shapes.of(op.result.axes).blocks for op in products}
        depths = {op: max(context.axes[x].size for x in op.summed) for op in products}
        promoted = {op: n for op, n in depths.items() if every and is_fp8(op.dtype)}
        ahead_of = LoadsAhead(context, stored)
        in_turn = OrderBarriers(builder, own) if own.order_barriers else None

        def region(block: Region) -> Region:
            block = in_turns(promoted_in_pieces(block, promoted, every, builder), blocks)
            with builder.region() as made:
                ahead = [*block]
                while ahead:
                    op = ahead.pop(0)
                    if not regions(op):
                        builder.add(op)
                        continue
                    op = with_regions(op, region)
                    if isinstance(op, ops.ForRange) and _takes_products(op):
                        op = ahead_of.emit(op)
                    stages = LoopStages.of(op, stored) if isinstance(op, ops.ForRange) else None
                    kept = InFlight.of(op, rings, depths) if isinstance(op, ops.ForRange) else None
                    if stages is not None:
                        builder.loc = op.loc
                        PipelinedLoop(stages, builder, dict(kernel.sizes), in_turn, known).emit()
                    elif isinstance(op, ops.ForRange) and _takes_sums(op):
                        builder.loc, stage = op.loc, LoopStages(op, op.body[:-1], (), (), (), {})
                        MaskedLoop(stage, builder, dict(kernel.sizes), None, known).emit()
                    elif kept is not None:
                        # The next partition may begin when the last MMAs have been issued.
                        order = [x for x in ahead[:1] if isinstance(x, ops.NamedBarrierArrive)]
                        kept.emit(builder, blocks, depths, order)
                        del ahead[: len(order)]
                    else:
                        builder.add(op)
            return tuple(made)

        body = region(own.body)
        if in_turn is None or not in_turn.used:
            if kernel.schedule is not None and kernel.schedule.order_barriers:
                why = "no loop has back-to-back MMAs in flight during other computation"
                raise ScheduleError(order_fault(why, kernel.loc))
            return with_fields(own, body=body)
        return with_fields(own, body=in_turn.around(body))

    def decoding(own: ops.Partition) -> ops.Partition:
        context = PartitionContext(kernel, own, builder)
        ahead_of = LoadsAhead(context, stored)

        def change(op: Op) -> Region:
            if not isinstance(op, ops.ForRange) or any(
                isinstance(inner, ops.ForRange) for inner in op.body
            ):
                return (op,)
            with builder.region() as made:
                builder.add(ahead_of.emit(op))
            return tuple(made)

        return with_fields(own, body=rewrite(own.body, change))

    def multiplying(own: ops.Partition) -> ops.Partition:
        def change(op: Op) -> Region:
            return (isinstance(op, ops.ForRange) and turned_products(op, made, builder)) or (op,)

        return with_fields(own, body=rewrite(own.body, change))

    kernel = ops.with_partitions(kernel, partition, "compute")
    return ops.with_partitions(ops.with_partitions(kernel, multiplying, "mma"), decoding, "decode")


def _takes_products(loop: ops.ForRange) -> bool:
    """Whether a loop has MMAs, or adds the results of MMAs in TMEM to carried values (the loop over
    output tiles carries none).
    """
    taken = (ops.Contract, ops.SlotSum) if loop.args else (ops.Contract,)
    return any(isinstance(op, taken) for op in loop.body)


def _takes_sums(loop: ops.ForRange) -> bool:
    """Whether each iteration reads accumulators in TMEM, without another loop inside."""
    inner = any(isinstance(op, ops.ForRange) for op in loop.body)
    return not inner and any(isinstance(op, ops.SlotSum) for op in loop.body)
