"""Order barriers of consumers who share a tile: they come to the tensor cores one after another,
once an iteration.

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

Consumer i waits at the i-th barrier, where the one in front arrives once it has started its
products. The last one arrives for the first before all work; behind it one arrival is left over,
its last, which the first one meets. All run the same iterations of all loops, however many.
"""

from __future__ import annotations

import dataclasses

from wsdsl.ir.barrier_ops import NamedBarrierArrive, NamedBarrierSync, WarpgroupIndex
from wsdsl.ir.op import Op, Region, Value
from wsdsl.ir.pipeline_ops import Partition
from wsdsl.ir.tile_ops import If, Yield
from wsdsl.lowering.builder import INT, Builder

FIRST = 1
"""The named barrier of the first consumer."""


class OrderBarriers:
    """Of one partition."""

    def __init__(self, builder: Builder, partition: Partition) -> None:
        self.builder, self.num = builder, partition.num_warpgroups
        b, b.loc = builder, partition.loc
        self.used = False
        with b.region() as before:
            own = b.add(WarpgroupIndex(result=b.value("own", INT))).result
            self.is_first = b.map("eq", own, b.integer(0), wish="is_first")
            is_last = b.map("eq", own, b.integer(self.num - 1), wish="is_last")
            after = b.map("add", own, b.integer(1), wish="next")
            following = b.map("where", is_last, b.integer(0), after, type=INT, wish="next")
            self._if(is_last, NamedBarrierArrive(barrier=FIRST, num_warpgroups=2))
        self.before, self.own, self.following = tuple(before), own, following

    def _add(self, op: Op) -> None:
        self.builder.add(dataclasses.replace(op, loc=self.builder.loc))

    def _if(self, cond: Value, op: Op) -> None:
        self.builder.add(If(cond=cond, then=(op, Yield()), orelse=(Yield(),)))

    def wait(self) -> None:
        """Until the consumer in front has started its products."""
        self.used = True
        self._add(NamedBarrierSync(barrier=FIRST, num_warpgroups=2, item=self.own, num=self.num))

    def hand_over(self) -> None:
        """To the consumer behind."""
        to = self.following
        self._add(NamedBarrierArrive(barrier=FIRST, num_warpgroups=2, item=to, num=self.num))

    def around(self, body: Region) -> Region:
        """The whole work, with what comes before and behind it."""
        with self.builder.region() as behind:
            self._if(self.is_first, NamedBarrierSync(barrier=FIRST, num_warpgroups=2))
        return (*self.before, *body, *behind)
