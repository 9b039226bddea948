"""A CTA on an SM: units, barriers and agents.

An agent is one warpgroup, or a single thread that issues its operations. It walks the kernel's body
as the simulator does, and computes scalars with the simulator's functions; data it has none. A
fragment is the time from which on it is there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from typing import Any, cast

from wsdsl.ir.op import Kernel, Op, Region, Value, by_op, operands, results_of
from wsdsl.ir.ops import AllocateGlobal
from wsdsl.ir.rewriter import yielded
from wsdsl.ir.types import Accumulator, Fragment
from wsdsl.report.timed.cycle_costs import OpEffects, Speeds, op_effects
from wsdsl.report.timed.pipeline_edges import edge_names
from wsdsl.report.timed.units import Barrier, Channel, Flag, Kind, Meeting, Span, Unit
from wsdsl.simulator.ops import control, pipeline
from wsdsl.simulator.warpgroup import Warpgroup
from wsdsl.simulator.warpgroup_steps import VALUES, assign

Steps = Generator[Channel | None, None, Any]
"""None offers a switch to who is behind, a channel is waited for."""
Perform = Callable[["Agent", Op, OpEffects], Steps]
CONTROL = by_op(control, pipeline, prefix="run_")
Ready = Callable[[], float | None]


class Facts:
    """Facts of a kernel, and state in global memory, that all SMs share."""

    def __init__(self, kernel: Kernel, speeds: Speeds, claimed: Sequence[int] = ()) -> None:
        self.speeds = speeds
        self.claimed = claimed
        """Tiles of the cluster's CLC responses, in order."""
        self.flags = defaultdict[tuple[str, tuple[int, ...]], Flag](Flag)
        """By tensor and index."""
        self.effects = {id(op): op_effects(op, kernel.definers) for op in kernel.ops}
        self.edges = edge_names(kernel, self.effects)
        self.barriers: Sequence[Any] = kernel.having("arrivals")
        self.workspace = {op.result.name for op in kernel.of(AllocateGlobal)}


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
        self.effects, self.workspace = facts.effects, facts.workspace
        self.claimed, self.flags = facts.claimed, facts.flags
        self.cluster = cluster
        cluster.append(self)
        self.units = beside.units if beside else {name: Unit() for name in UNITS}
        self.tensor, self.instructions, self.shared, self.loads, *rest = self.units.values()
        self.thread_loads, self.memory, self.stores, self.exchange = rest
        self.barriers = {
            op.result.name: [Barrier(op.arrivals) for _ in range(op.result.type.num)]
            for op in facts.barriers
        }
        self.meetings = defaultdict[str | int, Meeting](Meeting)
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

    def __init__(self, wg: Warpgroup, sm: Sm, now: float, perform: Perform) -> None:
        self.wg, self.sm, self.now, self.perform = wg, sm, now, perform
        wg.run, wg.registers = cast(Any, self.run), wg.partition.registers
        self.spans: list[Span] = []
        self.iterations: list[tuple[str, int]] = []
        self.begun = now
        """The iteration that it is in, of each loop, and when the last one began."""
        self.issued = {"MMA": (0.0, 0.0), "stores": (0.0, 0.0)}
        """When all that it has issued have read SMEM, and are complete."""
        self.groups = defaultdict[str, list[tuple[float, float]]](list)
        """The same of those up to each commit."""
        self.met = Meeting(), 0
        """The last barrier at which it arrived, and the round."""
        self.decodes = False
        """Whether it has read a pipeline stage since, to transform an operand."""
        self.loading = Unit()
        """Its instructions that load, where there are no products."""
        self.storing = Unit()
        """Its path to memory, where its stores overlap another warpgroup's MMAs."""
        self.answers = 0
        """That it has read."""

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

    def come(self, meeting: Meeting, expected: int) -> None:
        """Arrive at a barrier of `expected` agents."""
        own, over = meeting.come(self.now, expected)
        self.met = meeting, own
        if over:
            self.sm.wake(meeting)

    def issue(self, kind: Kind, read: float, done: float) -> None:
        before = self.issued[kind]
        self.issued[kind] = max(before[0], read), max(before[1], done)

    def run(self, region: Region) -> Steps:
        loops = self.wg.loops
        if loops and loops[-1] not in self.iterations:
            self.iterations, self.begun = [*loops], self.now
        for op in region:
            kind = type(op)
            if kind in VALUES and not is_of_fragments(op):
                assign(self.wg, op)
            elif kind in CONTROL:
                yield from CONTROL[kind](self.wg, op) or ()
            elif any(effects := self.sm.effects[id(op)]):
                yield from self.perform(self, op, effects)
            else:
                # It takes no time: results are ready when all operands are.
                self.wg.values |= dict.fromkeys([v.name for v in results_of(op)], self.ready(op))
        return tuple(self.wg.values[v.name] for v in yielded(region))

    def ready(self, op: Op) -> float:
        """When the fragments that it takes are there."""
        held = self.wg.values
        return max((held[v.name] for v in operands(op) if is_fragment(v.type)), default=0.0)


def is_of_fragments(op: Op) -> bool:
    return any(is_fragment(v.type) for v in (*results_of(op), *operands(op)))


def is_fragment(kind: Any) -> bool:
    return isinstance(kind, (Fragment, Accumulator))
