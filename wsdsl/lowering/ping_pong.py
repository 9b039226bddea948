"""Ping-pong: compute partitions take the tiles of a CTA in turn, and their mainloops follow one
another by order barriers.

    %turn_end = for_range(index=%work, ..., init=(%zero,), args=(%turn: i32,)) {
      %mine: bool = map(fn="eq", args=(%turn, %own))
      if(cond=%mine) {
        named_barrier_sync(barrier=1, num_warpgroups=2)
        ... the mainloop ...
        named_barrier_arrive(barrier=2, num_warpgroups=2)
        ... the epilogue ...
      } {
        ... the slots of this tile are another's ...
      }
      yield(values=(%next,))
    }

An order barrier is a named barrier of two warpgroups. The partition that has taken the last slot of
its mainloop arrives, the next partition waits. Before the first tile the last partition arrives for
the first one. Behind the loop one arrival is left over, and the partition that would be next waits
for it, so that every arrival is met.

The ring of the epilogue's operands has order barriers of its own: a partition waits for its
subtiles once the one in front has seen all of its own (`lowering/epilogue_operands.py`). It could
take a slot that was filled one lap ago for its own otherwise, as the parity is the same.
"""

from __future__ import annotations

from wsdsl.ir.barrier_ops import NamedBarrierArrive, NamedBarrierSync
from wsdsl.ir.op import Kernel, Op, Region
from wsdsl.ir.pipeline_ops import ForWork, Partition
from wsdsl.ir.slot_ops import ConsumerWait, TakeSubtiles
from wsdsl.ir.tile_ops import If, Yield
from wsdsl.ir.walk import walk
from wsdsl.lowering.builder import INT, Builder

FIRST_CONSUMER_BARRIER = 8
"""Named barriers below are order barriers."""


def ring_barrier(pingpong_index: int, num_pingpong: int) -> int:
    """The order barrier of the ring of the epilogue's operands."""
    return 1 + num_pingpong + pingpong_index


def consumer_barrier(kernel: Kernel, partition: Partition) -> int:
    """The named barrier of a compute partition's consumers."""
    compute = [op for op in kernel.body if isinstance(op, Partition) and op.role == "compute"]
    return FIRST_CONSUMER_BARRIER + compute.index(partition)


class PingPong:
    """Of one partition. `carried` are the loop's initial values, arguments and results for it."""

    def __init__(self, builder: Builder, op: ForWork) -> None:
        self.builder, self.op = builder, op
        b = builder
        self.own = b.integer(op.pingpong_index)
        first = b.integer(0)
        self.turn, self.end = b.value("turn", INT), b.value("turn_end", INT)
        self.carried = (first,), (self.turn,), (self.end,)
        in_parts = any(isinstance(o, TakeSubtiles) for o in walk(op.body))
        self.firsts = (1, ring_barrier(0, op.num_pingpong)) if in_parts else (1,)
        if op.pingpong_index == op.num_pingpong - 1:
            for barrier in self.firsts:
                b.add(NamedBarrierArrive(barrier=barrier, num_warpgroups=2, loc=op.loc))

    def take(self, body: list[Op], skip: Region) -> None:
        """One iteration: the work, if it is this partition's tile, and whose the next one is."""
        b, op = self.builder, self.op
        mine = b.map("eq", self.turn, self.own, wish="mine")
        slots = [i for i, o in enumerate(body) if _takes_slots(o)]
        own = NamedBarrierSync(barrier=1 + op.pingpong_index, num_warpgroups=2, loc=op.loc)
        following = (op.pingpong_index + 1) % op.num_pingpong
        hand = NamedBarrierArrive(barrier=1 + following, num_warpgroups=2, loc=op.loc)
        first, last = slots[0], slots[-1] + 1
        done = (*body[:first], own, *body[first:last], hand, *body[last:], Yield())
        b.add(If(cond=mine, then=done, orelse=(*skip, Yield()), loc=op.loc))
        one = b.integer(1)
        if op.num_pingpong == 2:
            after = b.map("sub", one, self.turn, wish="next")
        else:
            more = b.map("add", self.turn, one, wish="next")
            over = b.map("eq", more, b.integer(op.num_pingpong), wish="over")
            after = b.map("where", over, b.integer(0), more, type=INT, wish="next")
        b.add(Yield(values=(after,)))

    def finish(self) -> None:
        """Behind the loop: wait for the arrival that is left over."""
        b, op = self.builder, self.op
        left = b.map("eq", self.end, self.own, wish="left_over")
        take = (
            NamedBarrierSync(barrier=first + op.pingpong_index, num_warpgroups=2, loc=op.loc)
            for first in self.firsts
        )
        b.add(If(cond=left, then=(*take, Yield()), orelse=(Yield(),), loc=op.loc))


def _takes_slots(op: Op) -> bool:
    return any(isinstance(o, ConsumerWait) for o in walk((op,)))
