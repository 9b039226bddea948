"""Pipeline loops of back-to-back MMAs in TMEM: the first MMAs of the next iteration are issued
before the wait for the operand that threads compute from this iteration's.

Before, in the partition "mma":

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

The tensor cores compute the next scores while threads compute an operand from these. Only one of
the two loop stages takes the stages of a pipeline, so that these keep their order; and threads read
the next accumulators before they wait for the last MMAs of an iteration, or after it, so that one
stage per pipeline is enough. A loop whose first stage has a loop is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from wsdsl.ir import ops
from wsdsl.ir.effects import Wait, synchronizes
from wsdsl.ir.op import (
    Kernel,
    Makers,
    Op,
    Region,
    Value,
    operands,
    regions,
    results_of,
    with_fields,
)
from wsdsl.ir.rewriter import copy_region, following, makers, used_inside, walk, yielded
from wsdsl.ir.types import Accumulator, Fragment, Tile
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.partition_context import PartitionContext
from wsdsl.lowering.register_tiles import RegisterTile


def made_rings(kernel: Kernel) -> frozenset[Value]:
    """Return the pipelines of operands that threads compute from accumulators in TMEM."""
    sums = {op.result for op in kernel.of(ops.Pipeline) if op.space == "TMEM"}
    found = set[Value]()
    for own in kernel.of(ops.Partition):
        if own.role == "compute" and sums & _rings(own.body):
            slots = {op.slot for op in walk(own.body) if isinstance(op, ops.StoreToSlot)}
            taken = (op for op in walk(own.body) if isinstance(op, ops.ProducerAcquire))
            found |= {op.ring for op in taken if op.result in slots}
    return frozenset(found)


def _rings(members: Iterable[Op]) -> set[Value]:
    return {
        op.ring
        for op in walk(tuple(members))
        if isinstance(op, ops.ConsumerWait | ops.ProducerAcquire)
    }


def turned_products(loop: ops.ForRange, made: frozenset[Value], builder: Builder) -> Region | None:
    """Return the pipelined loop of the partition "mma"; None if it is unchanged."""
    stages = _stages(loop, made)
    if stages is None:
        return None
    first, second = stages
    b, body = builder, loop.body[:-1]
    b.loc = loop.loc

    def start(index: Value, cond: Value) -> ops.If:
        then = copy_region(first, b.namer, {loop.index: index})
        return ops.If(cond=cond, then=(*then, ops.Yield()), orelse=(ops.Yield(),), loc=loop.loc)

    with b.region() as members:
        b.add(start(loop.start, b.map("lt", loop.start, loop.stop, wish="some")))
        with b.region() as inner:
            coming = b.plus(loop.index, loop.step, "next")
            b.add(start(coming, b.map("lt", coming, loop.stop, wish="more")))
            b.ops += (op for op in body if op in second)
        b.add(with_fields(loop, body=(*inner, loop.body[-1])))
    return tuple(members)


def _stages(loop: ops.ForRange, made: frozenset[Value]) -> tuple[Region, Region] | None:
    """Return the two stages of a loop; both may compute the same scalars."""
    body = loop.body[:-1]
    waits = [
        op
        for op in body
        if any(isinstance(x, ops.ConsumerWait) and x.ring in made for x in walk((op,)))
    ]
    second = {*waits} | following(body, (v for op in waits for v in results_of(op)))
    grown = bool(second)
    while grown:
        before = len(second)
        for op in body:
            if isinstance(op, ops.ConsumerWait | ops.ProducerAcquire) and op not in second:
                users = following(body, (op.result,))
                second |= {op, *users} if users & second else set()
        grown = len(second) > before
    shared = {op for op in body if op.pure and not any(v.is_tile for v in results_of(op))}
    first = [op for op in body if op not in second]
    inner = [*walk(tuple(first))]
    # The trips of an inner loop of the first stage are known only within an iteration.
    if not second or any(isinstance(op, ops.ForRange) for op in inner):
        return None
    if not any(isinstance(op, ops.Contract) for op in inner):
        return None
    used = {v for op in second for v in (*operands(op), *used_inside(op))}
    # The last `axis_at` of its axis determines the place of a tile; no operand names it.
    both = {*makers(tuple(first), used), *(op for op in first if isinstance(op, ops.AxisAt))}
    carried = {*loop.args, *yielded(loop.body)}
    apart = [op for op in first if op not in shared]
    touched = {v for op in apart for v in (*operands(op), *used_inside(op), *results_of(op))}
    if not both <= shared or _rings(first) & _rings(second) or touched & carried:
        return None
    return tuple(first), tuple(op for op in body if op in second or op in both)


class TensorReads:
    """The accumulators in one stage, that of `state`."""

    def __init__(
        self,
        members: Sequence[ops.SumInTensor],
        release: ops.MbarrierArrive | None,
        context: PartitionContext,
    ) -> None:
        """`release`: the arrival that releases the stage, unless a store precedes it."""
        self.release, self.context = release, context
        self.started: dict[Value, Value] = {}
        self.pieces = {op.result: self._pieces(op) for op in members}
        self.unread = {
            (value, *place) for value, x in self.pieces.items() for place in x.shape.places()
        }

    @classmethod
    def of(cls, body: Region, context: PartitionContext) -> dict[Value, TensorReads]:
        """Return the reads by accumulator; those of both regions of an `if` may be in one stage."""
        if not any(isinstance(op, ops.SumInTensor) for op in walk(body)):
            return {}
        releases = {op.state: op for op in walk(body) if isinstance(op, ops.MbarrierArrive)}
        changed = {op.state for op in walk(body) if isinstance(op, ops.SumToTensor)}
        given_back = {state: op for state, op in releases.items() if state not in changed}
        found = dict[Value, TensorReads]()

        def within(region: Region) -> None:
            own: dict[Value, list[ops.SumInTensor]] = {}
            for op in region:
                for inner in regions(op):
                    within(inner)
                if isinstance(op, ops.SumInTensor):
                    own.setdefault(op.state, []).append(op)
            for state, members in own.items():
                reads = cls(members, given_back.get(state), context)
                found.update((op.result, reads) for op in members)

        within(body)
        return found

    def begin(self, op: ops.SumInTensor, scalar: Callable[[Value], Value]) -> RegisterTile:
        """Return the accumulator, whose fragments are read on demand; `scalar` returns the value of
        one.
        """
        if op.started is not None:
            self.started[op.result] = scalar(op.started)
        return self.pieces[op.result]

    def _pieces(self, op: ops.SumInTensor) -> RegisterTile:
        shape = self.context.shapes.of(op.result.as_tile.axes)
        return RegisterTile(shape, lambda i, j: self._read(op, i, j))

    def _read(self, op: ops.SumInTensor, i: int, j: int) -> Value:
        b, shape = self.context.builder, self.pieces[op.result].shape
        kind = shape.piece(op.result.as_tile.dtype, j)
        assert isinstance(kind, Fragment) and not isinstance(kind, Tile)
        load = ops.Tcgen05Ld(
            result=b.value("cells", Accumulator(kind.dtype, kind.rows, kind.columns)),
            sums=op.sums,
            state=op.state,
            column=op.column + shape.first_column(j),
            half=i,
            apart=shape.width if self.context.num_warpgroups > 1 else 0,
            loc=op.loc,
        )
        if not _is_fenced(b.ops, self.context.made):
            b.fence_tmem(after=True)
        b.add(load)
        sum = b.value("sum", kind)
        b.add(ops.Tcgen05WaitLd(result=(sum,), loads=(load.result,), loc=op.loc))
        self.unread.discard((op.result, i, j))
        if self.release is not None and not self.unread:
            b.fence_tmem()
            b.add(self.release)
        started = self.started.get(op.result)
        if started is None:
            return sum
        return b.make(ops.ZeroUnless, "sum", kind, x=sum, cond=started, loc=op.loc)

    def finish(self) -> None:
        """Read the fragments that are not read yet."""
        assert self.release is not None
        for pieces in self.pieces.values():
            pieces.all()


def _is_fenced(members: Sequence[Op], made: Makers) -> bool:
    """Whether a fence follows the last wait of the threads."""
    for op in reversed(members):
        if isinstance(op, ops.Tcgen05Fence):
            return op.after
        if regions(op) or synchronizes(op.effects(made), Wait, "mbarrier", "named barrier"):
            return False
    return False
