"""The run of a SCHEDULED kernel in predicted cycles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from wsdsl.diagnostics import Finding, ScheduleError
from wsdsl.ir.barrier_ops import ForRange
from wsdsl.ir.memory_ops import LoadGlobal
from wsdsl.ir.op import Kernel, Op, operands, results_of
from wsdsl.ir.tile_ops import If
from wsdsl.ir.types import Fragment, Tile
from wsdsl.lowering.cooperation import cluster_size
from wsdsl.lowering.model.predict import Prediction
from wsdsl.report.timed.agent import Agent
from wsdsl.report.timed.run import Run
from wsdsl.report.timed.sm import Facts
from wsdsl.report.timed.speeds import Speeds
from wsdsl.report.timed.units import Span
from wsdsl.report.timed.worker import Lane, Worker
from wsdsl.schedule import Schedule
from wsdsl.simulator.arrays import Arguments
from wsdsl.simulator.launch import read_launch, size_workspace

NAMES = {"load": "producer", "compute": "consumer"}


def timed(
    kernel: Kernel,
    prediction: Prediction,
    sizes: Mapping[str, int],
    clusters: Sequence[int],
    claimed: Sequence[int] = (),
) -> Worker:
    """Of `clusters` that run in one place, one after another; of one that claims, with those that
    it has `claimed`. ScheduleError where data decide how long a loop is, or the run is too long to
    show.
    """
    if (op := decided_by_data(kernel)) is not None:
        told = "data decide how long this takes, and a timeline has none"
        raise ScheduleError([Finding(told, op.loc, "`explain` tells of whole dimensions")])
    schedule = kernel.schedule or Schedule()
    speeds = Speeds.of(prediction, schedule)
    scalars = {p.name: 1 for p in kernel.params if isinstance(p.type, Tile)}
    arguments = Arguments({}, scalars, {**dict(kernel.sizes), **sizes}, {})
    size = cluster_size(schedule)
    launch = read_launch(kernel, arguments, kernel.target.cluster_room(size) * size)
    size_workspace(kernel, arguments, launch)
    run = Run(kernel, Facts(kernel, speeds), launch, arguments, claimed)
    now = speeds.start
    spans: dict[tuple[int, str], list[Span]] = defaultdict(list)
    units: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for index in clusters:
        sms = run.run(index, now)
        for rank, sm in enumerate(sms):
            for agent in sm.agents:
                spans[rank, _name(agent, sm.agents)] += agent.spans
            now = max(now, sm.last, *(agent.now for agent in sm.agents))
        for name, unit in sms[0].units.items():
            units[name] += unit.spans
    start = Span("start", "", 0.0, speeds.start)
    lanes = [Lane(name, rank, (start, *own)) for (rank, name), own in spans.items()]
    return Worker(
        ctas=tuple(clusters[0] * launch.cluster + rank for rank in range(launch.cluster)),
        lanes=tuple(lanes),
        units={name: tuple(times) for name, times in units.items() if times},
        cycles=now,
        predicted=prediction.cycles,
        clock=prediction.tile.clock,
    )


def _name(agent: Agent, agents: Sequence[Agent]) -> str:
    role = agent.wg.partition.role
    alike = [a for a in agents if a.wg.partition.role == role]
    word = NAMES.get(role, role)
    return word if len(alike) == 1 else f"{word} {alike.index(agent)}"


def decided_by_data(kernel: Kernel) -> Op | None:
    """A loop whose bounds come from memory, or a branch whose condition does, if there is one."""
    known: set[str] = set()
    for op in kernel.ops:
        decides = (op.cond,) if isinstance(op, If) else ()
        if isinstance(op, ForRange):
            decides = op.start, op.stop, op.step
        if any(v.name in known for v in decides):
            return op
        if isinstance(op, LoadGlobal) or any(v.name in known for v in operands(op)):
            known |= {v.name for v in results_of(op) if not isinstance(v.type, Fragment)}
    return None
