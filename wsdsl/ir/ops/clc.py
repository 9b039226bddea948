"""Dynamic tiles: clusters that run claim what has not started (cluster launch control).

A "dynamic" grid has a cluster for each tile, and the GPU starts as many as it has room for. One
thread of a cluster asks for another one: the answer says which one will not start any more, so that
its tile is the asking cluster's, or that no cluster is left. Each cluster of the grid is started or
claimed, once, so each tile is done once, in the order in which clusters end.

The answers are a pipeline of `DEPTH` items. The hardware fills it; all partitions of all CTAs of
the cluster read each answer, which is the next index of their loop over tiles, and give it back.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsdsl.ir.effects import Access, Arrive, Effects, whole
from wsdsl.ir.op import SCHEDULED, Makers, OneResult, Op, Value, op_class
from wsdsl.ir.types import Shared

ANSWER_BYTES = 16
NOTHING_LEFT = 2**31 - 1
"""The index that an answer has which claims no cluster: none that a loop goes on with."""
DEPTH = 2
"""The one that partitions read late, as they are done with its tile, and the one that is asked for:
the loop asks no further ahead, since MMAs wait until accumulators have been read."""


@op_class(SCHEDULED, "one", was="claim_cluster")
class ClcTryCancel(Op):
    """clusterlaunchcontrol.try_cancel: ask for a cluster of a "dynamic" grid that has not started,
    which then never does. The answer, of 16 bytes, comes to item `state.stage` of `shared` in all
    `ctas` CTAs of the cluster, and counts as bytes on the `barriers` of each, at the state's stage.
    Run by one thread of the cluster, and not again once an answer has no cluster.
    """

    shared: Value
    state: Value
    barriers: Value
    ctas: int = 1

    def effects(self, made: Makers) -> Effects:
        where = self.shared, self.state, whole(0, ANSWER_BYTES)
        yield Access("write", "smem", *where, asynchronous=True, ctas=self.ctas)
        bytes = -ANSWER_BYTES
        yield Arrive("mbarrier", self.barriers, self.state, 0, bytes, "one", ctas=self.ctas)

    def faults(self, made: Makers) -> Iterator[str]:
        if self.shared.type_as(Shared).bytes != ANSWER_BYTES:
            yield f"a CLC response needs an item of {ANSWER_BYTES} bytes"

    def item_align(self, made: Makers) -> int:
        return ANSWER_BYTES


@op_class(SCHEDULED, "any", was="claimed_cluster")
class ClcQueryCancel(OneResult):
    """The index of the cluster, of `ctas` CTAs, that the response in item `state.stage` of `shared`
    has claimed, or 2**31 - 1 if no cluster is left (clusterlaunchcontrol.query_cancel); i32. Each
    thread reads it, in the generic proxy.
    """

    shared: Value
    state: Value
    ctas: int = 1

    def effects(self, made: Makers) -> Effects:
        yield Access("read", "smem", self.shared, self.state, whole(0, ANSWER_BYTES))

    def item_align(self, made: Makers) -> int:
        return ANSWER_BYTES
