"""Taking turns at the tiles (ping-pong): whose turn it is, and the order of the mainloops.

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

A turn is a named barrier of two: who has taken the last slot of its mainloop arrives, who is next
waits. The first turn is given by the partition that comes last, which also is given one too many:
whoever would be next at the end takes it, so that every arrival is met.

Where the epilogue's operands come in parts, there are turns at their ring, too: the next one waits
for its parts once the last one has seen all of its own (`lowering/parts.py` says so). Else it could
take a slot that was filled a lap ago for its own, as the parity is the same.
"""

from __future__ import annotations

from wsdsl.ir.barrier_ops import NamedBarrierArrive, NamedBarrierSync
from wsdsl.ir.op import Kernel, Op, Region
from wsdsl.ir.pipeline_ops import ForWork, Partition
from wsdsl.ir.slot_ops import ConsumerWait, TakeParts
from wsdsl.ir.tile_ops import If, Yield
from wsdsl.ir.walk import walk
from wsdsl.lowering.builder import INT, Builder

FIRST_MEETING = 8
"""The named barriers before it are turns'."""


def part_turn(turn: int, turns: int) -> int:
    """The named barrier of a turn at the ring of parts."""
    return 1 + turns + turn


def meeting(kernel: Kernel, partition: Partition) -> int:
    """The named barrier of a compute partition's consumers."""
    compute = [op for op in kernel.body if isinstance(op, Partition) and op.role == "compute"]
    return FIRST_MEETING + compute.index(partition)


class Turns:
    """Of one partition. `carried` are the loop's initial values, arguments and results for it."""

    def __init__(self, builder: Builder, op: ForWork) -> None:
        self.builder, self.op = builder, op
        b = builder
        self.own = b.integer(op.turn)
        first = b.integer(0)
        self.turn, self.end = b.value("turn", INT), b.value("turn_end", INT)
        self.carried = (first,), (self.turn,), (self.end,)
        in_parts = any(isinstance(o, TakeParts) for o in walk(op.body))
        self.firsts = (1, part_turn(0, op.turns)) if in_parts else (1,)
        if op.turn == op.turns - 1:
            for barrier in self.firsts:
                b.add(NamedBarrierArrive(barrier=barrier, num_warpgroups=2, loc=op.loc))

    def take(self, body: list[Op], skip: Region) -> None:
        """One iteration: the work, if it is this partition's turn, and who is next."""
        b, op = self.builder, self.op
        mine = b.map("eq", self.turn, self.own, wish="mine")
        slots = [i for i, o in enumerate(body) if _takes_slots(o)]
        own = NamedBarrierSync(barrier=1 + op.turn, num_warpgroups=2, loc=op.loc)
        following = (op.turn + 1) % op.turns
        hand = NamedBarrierArrive(barrier=1 + following, num_warpgroups=2, loc=op.loc)
        first, last = slots[0], slots[-1] + 1
        done = (*body[:first], own, *body[first:last], hand, *body[last:], Yield())
        b.add(If(cond=mine, then=done, orelse=(*skip, Yield()), loc=op.loc))
        one = b.integer(1)
        if op.turns == 2:
            after = b.map("sub", one, self.turn, wish="next")
        else:
            more = b.map("add", self.turn, one, wish="next")
            over = b.map("eq", more, b.integer(op.turns), wish="over")
            after = b.map("where", over, b.integer(0), more, type=INT, wish="next")
        b.add(Yield(values=(after,)))

    def finish(self) -> None:
        """Behind the loop: take the turn that is left over."""
        b, op = self.builder, self.op
        left = b.map("eq", self.end, self.own, wish="left_over")
        take = (
            NamedBarrierSync(barrier=first + op.turn, num_warpgroups=2, loc=op.loc)
            for first in self.firsts
        )
        b.add(If(cond=left, then=(*take, Yield()), orelse=(Yield(),), loc=op.loc))


def _takes_slots(op: Op) -> bool:
    return any(isinstance(o, ConsumerWait) for o in walk((op,)))
