"""Build a synchronization trace: the current node, and facts about values of the kernel."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from wsdsl.ir.op import Makers, Op, Region, Value
from wsdsl.ir.types import Shared, State
from wsdsl.prover.ptx.expected_paths import ByThread, Change, Fill, Places, Skeleton
from wsdsl.prover.ptx.sync_events import EVERYBODY, Letter
from wsdsl.record import record


@record
class ThreadSet:
    """Threads that execute an op: `num` warpgroups (of a partition), or one elected thread."""

    first: int = 0
    num: int = 0
    warp: int = 0
    inside: bool = False
    elected: bool = False

    def one_in(self, count: int) -> int:
        """The first of every `count` threads."""
        return sum(1 << t for t in range(128 * self.first, 128 * (self.first + self.num), count))

    def one(self) -> int:
        """The thread that acts for a warpgroup, or (outside of partitions) for the CTA."""
        return EVERYBODY if self.elected else self.one_in(128) if self.inside else 1


class TraceBuilder(ABC):
    def __init__(self, together: bool, definers: Makers) -> None:
        self.definers: Mapping[Value, Any] = definers
        self.graph, self.places, self.now = Skeleton(), Places(), 0
        self.together = together
        self.known: dict[Value, int | float | bool] = {}
        self.cluster = 1
        self.by_rank: dict[Value, tuple[int, ...]] = {}
        """Numbers that depend only on the CTA's rank in its cluster."""
        self.by_warpgroup: dict[Value, tuple[int, ...]] = {}
        """Numbers that depend only on the warpgroup, for each warpgroup of the CTA."""
        self.around: list[tuple[Value, Value]] = []
        """Bounds of the enclosing loops."""
        self.decided: dict[tuple[Value, Value], bool] = {}
        """Whether consecutive loops of these bounds run."""

    @abstractmethod
    def region(self, region: Region, who: ThreadSet) -> None:
        """Append the events of a region to the current node."""

    def emit(
        self,
        op: Op,
        kind: str,
        detail: str = "",
        barrier: str = "",
        to: str = "",
        threads: int = EVERYBODY,
        fill: Fill | None = None,
    ) -> None:
        node = self.graph.node(Letter(kind, detail, barrier, to), op, threads)
        if fill is not None:
            self.graph.fills[node] = fill
        self.graph.join(self.now, node)
        self.now = node

    def silent(self, *before: int, threads: int = EVERYBODY) -> int:
        node = self.graph.node(threads=threads)
        for held in before:
            self.graph.join(held, node)
        return node

    def changed(self, moves: Sequence[tuple[Value, Value]]) -> None:
        """Copy pipeline states from each second value to the first."""
        kept = [(into, of, 0) for into, of in moves if isinstance(into.type, State)]
        if kept:
            self.now = self.silent(self.now)
            self.graph.changes[self.now] = Change(tuple(kept))

    def change(self, into: Value, of: Value | int, num: int) -> None:
        """Define a pipeline state: a parity, or the stage after another one."""
        self.now = self.silent(self.now)
        self.graph.changes[self.now] = Change(((into, of, num),))

    def of_barrier(self, op: Any, **where: Any) -> Fill:
        """Return the place of the barrier that an op uses."""
        return Fill(self.places.barriers[op.barriers], op.state, **where)

    def of_ranks(self, x: Value | None) -> ByThread | None:
        """The number in each CTA of the cluster, None for no value."""
        if x is None:
            return None
        known = self.known.get(x)
        each = self.by_rank.get(x, (None if known is None else int(known),) * self.cluster)
        return lambda _, rank: each[rank]

    def item(self, shared: Value, offset: int) -> tuple[int, int]:
        """The address of bytes of an item, and the size of an item."""
        return self.definers[shared].offset + offset, shared.type_as(Shared).bytes

    def of_warpgroups(self, x: Value | None) -> tuple[int | None, ...]:
        """The number in each warpgroup of the CTA, 0 for no value."""
        known = 0 if x is None else self.known.get(x)
        same = (None if known is None else int(known),) * (self.places.num_threads // 128)
        return same if x is None else self.by_warpgroup.get(x, same)
