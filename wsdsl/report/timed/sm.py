"""A CTA on an SM: units, barriers and agents.

An agent is one warpgroup, or a single thread that issues its operations. It walks the kernel's body
as the simulator does, and computes scalars with the simulator's functions; data it has none. A
fragment is the time from which on it is there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.op import Kernel, Op, Region, Value, operands, results_of
from wsdsl.ir.ops import AllocateGlobal, LoadGlobal, MakeTensorMap, Partition
from wsdsl.ir.types import Accumulator, Fragment, Tensor
from wsdsl.report.timed.cycle_costs import Speeds
from wsdsl.report.timed.pipeline_edges import edge_names
from wsdsl.report.timed.units import Barrier, Channel, Flag, Kind, Meeting, Span, Unit
from wsdsl.simulator.warpgroup import Warpgroup
from wsdsl.simulator.warpgroup_steps import VALUES, assign

Steps = Generator[Channel | None, None, Any]
"""None offers a switch to who is behind, a channel is waited for."""
Effect = Callable[["Agent", Any], Steps | None]
Ready = Callable[[], float | None]


class Facts:
    """Facts of a kernel, and state in global memory, that all SMs share."""

    def __init__(self, kernel: Kernel, speeds: Speeds, claimed: Sequence[int] = ()) -> None:
        self.speeds = speeds
        self.claimed = claimed
        """Tiles of the cluster's CLC responses, in order."""
        self.flags = defaultdict[tuple[str, tuple[int, ...]], Flag](Flag)
        """By tensor and index."""
        self.edges, self.definers = edge_names(kernel), kernel.definers
        self.workspace = {op.result.name for op in kernel.of(AllocateGlobal)}
        self.boxes: dict[str, tuple[float, str]] = {}
        """Bytes of a box, and the tensor."""
        for op in kernel.ops:
            if isinstance(op, MakeTensorMap) and isinstance(op.tensor.type, Tensor):
                moved = math.prod(op.box) * op.tensor.type.dtype.bits / 8
                self.boxes[op.result.name] = moved, op.tensor.name


UNITS = (
    "tensor cores",
    "instructions",
    "SMEM accesses of threads",
    "L2",
    "loads of threads",
    "DRAM",
    "stores",
    "DSMEM",
)


class Sm:
    """A CTA, and the units of its SM, which it shares with the CTAs `beside` it."""

    def __init__(
        self, wake: Callable[[Channel], None], facts: Facts, cluster: list[Sm], beside: Sm | None
    ) -> None:
        """`wake` schedules the agents that wait for a channel."""
        self.wake, self.speeds, self.edges = wake, facts.speeds, facts.edges
        self.definers = facts.definers
        self.claimed, self.flags = facts.claimed, facts.flags
        self.boxes, self.workspace = facts.boxes, facts.workspace
        self.cluster = cluster
        cluster.append(self)
        self.units = beside.units if beside else {name: Unit() for name in UNITS}
        self.tensor, self.instructions, self.shared, self.loads, *rest = self.units.values()
        self.thread_loads, self.memory, self.stores, self.exchange = rest
        self.barriers: dict[str, list[Barrier]] = {}
        self.meeting, self.cluster_meeting = Meeting(), Meeting()
        self.named: dict[int, Meeting] = defaultdict(Meeting)
        self.agents: list[Agent] = []
        self.last = 0.0
        """When its last store is complete."""

    def arrive(self, barriers: Value, state: Any, at: float, count: int = 1, tx: int = 0) -> None:
        """At the barrier of a state's stage."""
        barrier = self.barriers[barriers.name][state.stage]
        if barrier.arrive(at, count, tx):
            self.wake(barrier)

    @property
    def end(self) -> float:
        """When the CTA exits, in cycles since the launch."""
        return max(self.last, *(agent.now for agent in self.agents))


class Agent:
    """`wg` holds its scalars; `now` is its clock."""

    def __init__(self, wg: Warpgroup, sm: Sm, now: float) -> None:
        self.wg, self.sm, self.now = wg, sm, now
        self.spans: list[Span] = []
        self.begun = now
        """The iteration that it is in."""
        self.products: list[float] = []
        """When the wgmmas since the last commit are complete."""
        self.groups: list[float] = []
        self.decodes = False
        """Whether it has read a pipeline stage since, to transform an operand."""
        self.loading = Unit()
        """Its instructions that load, where there are no products."""
        self.storing = Unit()
        """Its path to memory, where its stores overlap another warpgroup's MMAs."""
        self.answers = 0
        """That it has read."""
        self.stores: list[tuple[float, float]] = []
        """When those since the last commit have read SMEM, and have written."""
        self.store_groups: list[tuple[float, float]] = []

    @property
    def name(self) -> str:
        return f"{self.wg.partition.role} {self.wg.rank}"

    def get(self, value: Any) -> Any:
        return self.wg.values[value.name]

    def until(self, at: float, kind: Kind, edge: str = "") -> None:
        """It is busy, or waits, till then."""
        if at > self.now:
            last = self.spans[-1] if self.spans else None
            if last and last.stop == self.now and (last.kind, last.edge) == (kind, edge):
                self.spans[-1] = Span(kind, edge, last.start, at)
            else:
                self.spans.append(Span(kind, edge, self.now, at))
            self.now = at

    def awaits(self, channel: Channel, ready: Ready, edge: str, more: float = 0.0) -> Steps:
        """`more` cycles after it is ready, unless it was so long before."""
        while (at := ready()) is None:
            yield channel
        self.until(at + more, "wait", edge)

    def come(self, meeting: Meeting, expected: int) -> int:
        """Arrive at a barrier of `expected` agents; return its round."""
        own, over = meeting.come(self.now, expected)
        if over:
            self.sm.wake(meeting)
        return own

    def run(self, region: Region, effects: dict[type[Op], Effect]) -> Steps:
        values = self.wg.values
        for op in region:
            kind = type(op)
            if kind in VALUES and not is_of_fragments(op):
                assign(self.wg, op)
                continue
            if (effect := effects.get(kind)) is not None:
                yield None
                if (waiting := effect(self, op)) is not None:
                    yield from waiting
                continue
            match op:
                case ops.Yield():
                    return tuple(values[v.name] for v in op.values)
                case ops.ForRange():
                    yield from self._loop(op, effects)
                case ops.If():
                    chosen = op.then if self.get(op.cond) else op.orelse
                    self._define(op.result, (yield from self.run(chosen, effects)))
                case ops.Elect():
                    if self.wg.rank == 0 and (self.wg.in_partition or self.wg.index == 0):
                        yield from self.run(op.body, effects)
                case Partition():
                    if self.wg.partition is op:
                        self.wg.in_partition = True
                        yield from self.run(op.body, effects)
                        self.wg.in_partition = False
                case _:
                    self._pass(op)
        return ()

    def _define(self, results: tuple[Any, ...], held: tuple[Any, ...]) -> None:
        for value, own in zip(results, held, strict=True):
            self.wg.values[value.name] = own

    def _loop(self, op: ops.ForRange, effects: dict[type[Op], Effect]) -> Steps:
        values = self.wg.values
        start, stop, step = (int(self.get(v)) for v in (op.start, op.stop, op.step))
        carried = tuple(values[v.name] for v in op.init)
        i = start
        while i < stop:
            values[op.index.name], self.begun = i, self.now
            self._define(op.args, carried)
            carried = yield from self.run(op.body, effects)
            i = int(carried[-1]) if op.claimed else i + step
        self._define(op.result, carried)

    def _pass(self, op: Op) -> None:
        """Take no time: results are ready when all operands are."""
        there = self.ready(op)
        for result in results_of(op):
            self.wg.values[result.name] = there

    def ready(self, op: Op) -> float:
        """When the fragments that it takes are there."""
        held = self.wg.values
        return max((held[v.name] for v in operands(op) if is_fragment(v.type)), default=0.0)


def is_of_fragments(op: Op) -> bool:
    kinds = (*results_of(op), *operands(op))
    return isinstance(op, LoadGlobal) or any(is_fragment(v.type) for v in kinds)


def is_fragment(kind: Any) -> bool:
    return isinstance(kind, (Fragment, Accumulator))
