"""A CTA on an SM: units, barriers and agents."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from wsdsl.ir.memory_ops import AllocateGlobal, MakeTensorMap
from wsdsl.ir.op import Kernel, Value
from wsdsl.ir.types import Tensor
from wsdsl.report.timed.agent import Agent
from wsdsl.report.timed.edges import edge_names
from wsdsl.report.timed.speeds import Speeds
from wsdsl.report.timed.units import Barrier, Meeting, Unit

if TYPE_CHECKING:
    from wsdsl.report.timed.run import Run


class Facts:
    """Of a kernel, what is the same for every SM."""

    def __init__(self, kernel: Kernel, speeds: Speeds) -> None:
        self.speeds = speeds
        self.edges = edge_names(kernel)
        self.workspace = {op.result.name for op in kernel.of(AllocateGlobal)}
        self.boxes: dict[str, tuple[float, str]] = {}
        """Bytes of a box, and the tensor."""
        for op in kernel.ops:
            if isinstance(op, MakeTensorMap) and isinstance(op.tensor.type, Tensor):
                moved = math.prod(op.box) * op.tensor.type.dtype.bits / 8
                self.boxes[op.result.name] = moved, op.tensor.name
        schedule = kernel.schedule
        self.work_loops = int(schedule is None or schedule.scheduler != "grid")
        """Loops over tiles, which are no loops of a tile."""


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

    def __init__(self, run: Run, facts: Facts, cluster: list[Sm], beside: Sm | None) -> None:
        self.run, self.speeds, self.edges = run, facts.speeds, facts.edges
        self.boxes, self.workspace = facts.boxes, facts.workspace
        self.work_loops = facts.work_loops
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
            self.run.wake(barrier)

    @property
    def end(self) -> float:
        """When the CTA exits, in cycles since the launch."""
        return max(self.last, *(agent.now for agent in self.agents))
