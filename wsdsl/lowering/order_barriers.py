"""Ordered-sequence barriers: consumers issue MMAs one after another.

An order barrier is a named barrier of two warpgroups. Each consumer of the sequence has one: it
waits there, and the consumer before it arrives. The last consumer arrives for the first before all
work. After all work one arrival is left over; the consumer that is next in the sequence waits for
it, so that every arrival has a wait.

**Consumers who share a tile** (`OrderBarriers`) follow one another once an iteration. All run the
same iterations of all loops, however many.

    %own: i32 = warpgroup_index()
    %next: i32 = ... that of the consumer behind, of the last one the first ...
    if(cond=(%own == 1)) { named_barrier_arrive(barrier=1, num_warpgroups=2) }
    ... for_range(...) {
      named_barrier_sync(barrier=1, num_warpgroups=2, item=%own, num=2)
      ... start the products of an iteration ...
      named_barrier_arrive(barrier=1, num_warpgroups=2, item=%next, num=2)
      ... what is between them, while the other one's products run ...
    }
    if(cond=(%own == 0)) { named_barrier_sync(barrier=1, num_warpgroups=2) }

**Ping-pong** (`PingPong`): compute partitions alternate between the tiles of a CTA, and their
mainloops follow one another: a partition arrives after the last stage of its mainloop.

    %turn_end = for_range(index=%work, ..., init=(%zero,), args=(%turn: i32,)) {
      %mine: bool = map(fn="eq", args=(%turn, %own))
      if(cond=%mine) {
        named_barrier_sync(barrier=1, num_warpgroups=2)
        ... the mainloop ...
        named_barrier_arrive(barrier=2, num_warpgroups=2)
        ... the epilogue ...
      } {
        ... the stages of this tile are another's ...
      }
      yield(values=(%next,))
    }

The pipeline of the epilogue's operands has separate order barriers: a partition waits for its
subtiles after the partition before it has waited for all of its own
(`lowering/epilogue_operands.py`). Otherwise it could mistake a stage of the previous round for its
own, since the parity is equal.
"""

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Region, Value, walk
from wsdsl.lowering.builder import INT, Builder

FIRST = 1
"""The order barrier of the first consumer."""
FIRST_CONSUMER_BARRIER = 8
"""Named barriers below are order barriers."""


def ring_barrier(pingpong_index: int, num_pingpong: int) -> int:
    """Return the order barrier of the pipeline of the epilogue's operands."""
    return FIRST + num_pingpong + pingpong_index


def consumer_barrier(kernel: Kernel, partition: ops.Partition) -> int:
    """The named barrier of a compute partition's consumers, or of the warpgroup that multiplies on
    tensor memory.
    """
    meeting = [
        op for role in ("compute", "mma") for op in kernel.of(ops.Partition) if op.role == role
    ]
    return FIRST_CONSUMER_BARRIER + meeting.index(partition)


def arrive(b: Builder, barrier: int, item: Value | None = None, num: int = 1) -> None:
    """Arrive at the barrier, or at the `item`-th of `num` from there on."""
    b.add(ops.NamedBarrierArrive(barrier=barrier, num_warpgroups=2, item=item, num=num, loc=b.loc))


def wait(b: Builder, barrier: int, item: Value | None = None, num: int = 1) -> None:
    """Wait until the consumer before has arrived."""
    b.sync_threads(barrier, 2, item=item, num=num)


class OrderBarriers:
    """Of one partition."""

    def __init__(self, builder: Builder, partition: ops.Partition) -> None:
        self.builder, self.num = builder, partition.num_warpgroups
        b, b.loc = builder, partition.loc
        self.used = False
        with b.region() as before:
            own = b.warpgroup("own")
            self.is_first = b.map("eq", own, b.integer(0), wish="is_first")
            is_last = b.map("eq", own, b.integer(self.num - 1), wish="is_last")
            after = b.map("add", own, b.integer(1), wish="next")
            following = b.map("where", is_last, b.integer(0), after, type=INT, wish="next")
            with b.when(is_last):
                arrive(b, FIRST)
        self.before, self.own, self.following = tuple(before), own, following

    def wait(self) -> None:
        """Until the consumer in front has started its products."""
        self.used = True
        wait(self.builder, FIRST, self.own, self.num)

    def hand_over(self) -> None:
        """Arrive for the next consumer."""
        arrive(self.builder, FIRST, self.following, self.num)

    def around(self, body: Region) -> Region:
        """Return the whole work, with the first arrival before it and the last wait after it."""
        with self.builder.region() as behind, self.builder.when(self.is_first):
            wait(self.builder, FIRST)
        return (*self.before, *body, *behind)


class PingPong:
    """Of one partition. `carried` are the loop's initial values, arguments and results for it."""

    def __init__(self, builder: Builder, op: ops.ForWork) -> None:
        self.builder, self.op = builder, op
        b = builder
        self.own = b.integer(op.pingpong_index)
        first = b.integer(0)
        self.turn, self.end = b.value("turn", INT), b.value("turn_end", INT)
        self.carried = (first,), (self.turn,), (self.end,)
        in_parts = any(isinstance(o, ops.TakeSubtiles) for o in walk(op.body))
        self.firsts = (FIRST, ring_barrier(0, op.num_pingpong)) if in_parts else (FIRST,)
        if op.pingpong_index == op.num_pingpong - 1:
            for barrier in self.firsts:
                arrive(b, barrier)

    def take(self, body: list[Op], skip: Region) -> None:
        """One iteration: the work, if it is this partition's tile, and whose the next one is."""
        b, op = self.builder, self.op
        mine = b.map("eq", self.turn, self.own, wish="mine")
        taken = [any(isinstance(o, ops.ConsumerWait) for o in walk((op,))) for op in body]
        slots = [i for i, takes in enumerate(taken) if takes]
        first, last = slots[0], slots[-1] + 1
        with b.when(mine, orelse=skip):
            b.ops += body[:first]
            wait(b, FIRST + op.pingpong_index)
            b.ops += body[first:last]
            arrive(b, FIRST + (op.pingpong_index + 1) % op.num_pingpong)
            b.ops += body[last:]
        one = b.integer(1)
        if op.num_pingpong == 2:
            after = b.map("sub", one, self.turn, wish="next")
        else:
            more = b.map("add", self.turn, one, wish="next")
            over = b.map("eq", more, b.integer(op.num_pingpong), wish="over")
            after = b.map("where", over, b.integer(0), more, type=INT, wish="next")
        b.add(ops.Yield(values=(after,)))

    def finish(self) -> None:
        """Wait, after the loop, for the arrival that is left over."""
        b = self.builder
        with b.when(b.map("eq", self.end, self.own, wish="left_over")):
            for first in self.firsts:
                wait(b, first + self.op.pingpong_index)
