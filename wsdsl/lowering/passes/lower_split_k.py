"""Hand the sums of a tile's pieces from CTA to CTA, through GMEM and a flag for each tile.

Before:
    splitk_fixup(sums=(%acc,), slot=%slot, begin=%begin, end=%end, contraction="K", args=(%sum,)) {
      store(tensor=%C, index=(%m, %n), value=%sum)
    }
After:
    %partials: tensor<f32[partials_lines, 256]> = allocate_global(each=128, fragments=True)
    %flags: tensor<i32[flags_lines]> = allocate_global(each=2, zeroed=True)
      ...
      %continued: bool = map(fn="gt", args=(%begin, %zero))
      %finished: bool = map(fn="ge", args=(%end, %size_K))
      %sum: f32[m, n] = if(cond=%continued) {
        semaphore_wait(tensor=%flags, index=(%flag,), count=%begin)
        %before = load(tensor=%partials, index=(%m_piece, %n_piece))
        ... add it ...
      } { yield(values=(%acc,)) }
      if(cond=%finished) {
        store(tensor=%C, index=(%m, %n), value=%sum)
        if(cond=%continued) {
          named_barrier_sync(barrier=8, num_warpgroups=2)
          semaphore_arrive(tensor=%flags, index=(%flag,), by=%minus_begin, release=False)
        } {}
      } {
        store(tensor=%partials, index=(%m_piece, %n_piece), value=%sum)
        named_barrier_sync(barrier=8, num_warpgroups=2)
        semaphore_arrive(tensor=%flags, index=(%flag,), by=%length)
      }

A flag counts the elements of the contraction that lie summed in its slot, so a piece's turn has
come when it is `begin`; the last piece sets it back to 0. Each consumer has flags and rows of its
own. (The parallel reduction, and that in a cluster: `lowering/parallel_reduction.py`.)

Why here: pieces are numbers; states and tiles are lowered next, for whatever is here.
"""

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Region, Value
from wsdsl.ir.rewriter import with_regions
from wsdsl.lowering.order_barriers import consumer_barrier
from wsdsl.lowering.parallel_reduction import ParallelReduction, finish_in_cluster
from wsdsl.lowering.register_layout import height_of, reduces_rows
from wsdsl.lowering.split_k_workspace import Partials, Place


def lower_split_k(kernel: Kernel) -> Kernel:
    grid = ops.grid_of(kernel)
    if grid is None or not kernel.of(ops.SplitkFixup):
        return kernel
    partials = Partials(kernel, grid.cluster)
    height = height_of(kernel) if reduces_rows(kernel) else 0
    body: list[Op] = []
    rings: list[Op] = []
    for op in kernel.body:
        if isinstance(op, ops.Partition) and op.role == "compute":
            partials.barrier = consumer_barrier(kernel, op)
            partials.consumers = op.num_warpgroups
            pieces = _Pieces(partials, grid.splits, height)
            op = with_regions(op, pieces.region)
            rings += pieces.rings
        body.append(op)
    at = body.index(grid) + 1
    made = (*partials.lent.values(), *rings)
    return kernel.with_body((*body[:at], *made, *body[at:]))


class _Pieces:
    """One partition."""

    def __init__(self, partials: Partials, splits: int, height: int) -> None:
        self.height = height
        self.partials, self.splits, self.builder = partials, splits, partials.builder
        self.starts: dict[str, Value] = {}
        self.rings: list[ops.Pipeline] = []

    def region(self, region: Region) -> Region:
        return self.builder.each(region, self.convert)

    def convert(self, op: Op) -> None:
        if isinstance(op, ops.AxisAt):
            self.starts[op.result.as_axis.name] = op.start
        if not isinstance(op, ops.SplitkFixup):
            self.builder.add(with_regions(op, self.region))
        elif op.reduction == "cluster":
            self.rings.append(finish_in_cluster(self.partials, op, self.starts))
        elif op.reduction == "parallel":
            ParallelReduction(self.partials, op, self.splits, self.height).finish(self.starts)
        else:
            self.in_turns(op)

    def in_turns(self, op: ops.SplitkFixup) -> None:
        b, partials = self.builder, self.partials
        continued = b.map("gt", op.begin, b.integer(0), wish="continued")
        size = b.size(op.contraction, partials.static.get(op.contraction))
        finished = b.map("ge", op.end, size, wish="finished")
        flags, flag = partials.flag(op.slot)
        lines = [partials.line(v, op.slot) for v in op.sums]
        places = [partials.place(v, i, lines[i]) for i, v in enumerate(op.sums)]
        with b.region() as then:
            b.add(ops.SemaphoreWait(tensor=flags, index=(flag,), count=op.begin))
            whole = [self.added(v, p) for v, p in zip(op.sums, places, strict=True)]
            b.add(ops.Yield(values=tuple(whole)))
        b.add(
            ops.If(
                result=op.args,
                cond=continued,
                then=tuple(then),
                orelse=(ops.Yield(values=op.sums),),
            )
        )
        with b.region() as handed:
            partials.wait_for_readers(op.args)
            for sum, place in zip(op.args, places, strict=True):
                partials.store(sum, place)
            partials.arrive(flags, flag, by=b.map("sub", op.end, op.begin, wish="length"))
        with b.when(finished, orelse=tuple(handed)):
            b.ops += op.body
            with b.when(continued):
                back = b.map("sub", b.integer(0), op.begin, wish="back")
                partials.arrive(flags, flag, by=back, release=False)

    def added(self, sum: Value, place: Place) -> Value:
        """With what is in the slot."""
        b = self.builder
        args = (sum, self.partials.load(sum.as_tile, place))
        return b.add(ops.Map(result=b.value(sum.name, sum.as_tile), fn="add", args=args)).result
