"""The run of a SCHEDULED kernel in predicted cycles."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import itemgetter

from wsdsl.diagnostics import Finding, ScheduleError
from wsdsl.ir.op import Kernel, Op, operands, regions, results_of
from wsdsl.ir.ops import Loop
from wsdsl.ir.types import Fragment, Tile
from wsdsl.lowering.cooperation import cluster_size
from wsdsl.lowering.cost_model.predict import Prediction
from wsdsl.lowering.smem_allocations import fits_smem
from wsdsl.report.bottleneck import unit_fractions
from wsdsl.report.timed.agent_queue import Run
from wsdsl.report.timed.cycle_costs import Speeds
from wsdsl.report.timed.sm import Agent, Facts
from wsdsl.report.timed.units import Span
from wsdsl.report.timed.worker import Lane, Worker
from wsdsl.schedule import Schedule
from wsdsl.simulator.launch_state import read_launch, size_workspace
from wsdsl.simulator.reference.bound_arrays import Arguments

NAMES = {"load": "producer", "compute": "consumer"}


def timed(
    kernel: Kernel,
    prediction: Prediction,
    sizes: Mapping[str, int],
    clusters: Sequence[int],
    claimed: Sequence[int] = (),
) -> Worker:
    """Run `clusters` on one SM (or one cluster of SMs): as many at the same time as are resident
    there, each of the others when one ends. A cluster that claims work units gets `claimed`.

    ScheduleError if a loop's trip count depends on data, or the run takes too many steps.
    """
    if (op := decided_by_data(kernel)) is not None:
        told = "WS1043 the duration of this depends on data, which a timeline has not"
        raise ScheduleError(
            [Finding(told, op.loc, "use `explain`, which takes rows= for ragged loops")]
        )
    schedule, source = kernel.schedule or Schedule(), prediction.tile.work.kernel
    speeds = Speeds.of(prediction, schedule)
    resident = prediction.resident
    scalars = {p.name: 1 for p in kernel.params if isinstance(p.type, Tile)}
    arguments = Arguments({}, scalars, {**dict(kernel.sizes), **sizes}, {})
    size = cluster_size(schedule)
    launch = read_launch(kernel, arguments, kernel.target.cluster_room(size) * size * resident)
    size_workspace(kernel, arguments, launch)
    run = Run(kernel, Facts(kernel, speeds, claimed), launch, arguments)
    done = run.run(clusters, speeds.start, resident)
    spans: dict[tuple[int, int, str], list[Span]] = defaultdict(list)
    for slot, cluster in sorted(done, key=itemgetter(0)):
        at = f"CTA {slot} " if resident > 1 else ""
        for rank, sm in enumerate(cluster):
            for agent in sm.agents:
                spans[slot, rank, at + _name(agent, sm.agents)] += agent.spans
    units = done[0][1][0].units
    start = Span("start", "", 0.0, speeds.start)
    lanes = [Lane(n, rank, (start, *own), slot) for (slot, rank, n), own in spans.items()]
    return Worker(
        ctas=tuple(clusters[0] * launch.cluster + rank for rank in range(launch.cluster)),
        lanes=tuple(lanes),
        units={name: tuple(unit.spans) for name, unit in units.items() if unit.spans},
        cycles=max(sm.end for _, cluster in done for sm in cluster),
        predicted=prediction.cycles,
        clock=prediction.tile.clock,
        fractions=unit_fractions(prediction, schedule),
        has_smem_for_a_stage=fits_smem(source, schedule, (schedule.stages or 1) + 1, buffers=1),
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
        carried = op.init if isinstance(op, Loop) else ()
        decides = operands(op)[: len(operands(op)) - len(carried)] if regions(op) else ()
        if any(v.name in known for v in decides):
            return op
        if (op.repeatable and not op.pure) or any(v.name in known for v in operands(op)):
            known |= {v.name for v in results_of(op) if not isinstance(v.type, Fragment)}
    return None
