"""How consumers, and the CTAs of a cluster, divide the work on output tiles among themselves."""

import math
from collections.abc import Iterable

from wsdsl.ir.op import Kernel, Value, once_each, walk
from wsdsl.ir.ops import ClearPanels, Contract, Partition, ThreadLoad
from wsdsl.ir.types import Axis, Role
from wsdsl.lowering.axes import axes_of, loop_variable, output_nest
from wsdsl.schedule import Schedule


def num_pingpong_consumers(schedule: Schedule) -> int:
    """Compute partitions in ping-pong; 1 where consumers cooperate."""
    return (schedule.consumers or 1) if schedule.mode == "pingpong" else 1


def num_cooperating(schedule: Schedule) -> int:
    """Warpgroups that share a tile."""
    return (schedule.consumers or 1) // num_pingpong_consumers(schedule)


@once_each
def shared_role(kernel: Kernel, schedule: Schedule) -> Role:
    """Whether each of them has rows of a tile or columns."""
    if schedule.consumer_split is None:
        return "rows"
    named = (a for name, a in axes_of(kernel).items() if is_shared(name, schedule))
    return "columns" if any(axis.role == "columns" for axis in named) else "rows"


def is_shared(axis: str, schedule: Schedule) -> bool:
    """Whether the schedule has consumers split the axis."""
    return schedule.consumer_split in (axis, loop_variable(axis))


@once_each
def num_shares(kernel: Kernel, schedule: Schedule) -> dict[Role, int]:
    """By role, how many warpgroups a tile's axis is divided among."""
    own = shared_role(kernel, schedule)
    roles: tuple[Role, ...] = ("", "rows", "columns")
    return {role: num_cooperating(schedule) if role == own else 1 for role in roles}


def cluster_size(schedule: Schedule) -> int:
    """CTAs of a cluster."""
    return math.prod((schedule.cluster or {}).values())


@once_each
def cluster_splits(kernel: Kernel, schedule: Schedule) -> int:
    """CTAs of a cluster that share the contraction of a product's tile."""
    if not kernel.of(Contract):
        return 1
    return cluster_splits_beside(schedule, (loop.index for loop in output_nest(kernel)[0]))


def cluster_splits_beside(
    schedule: Schedule, output: Iterable[Value], held: Iterable[str] = ()
) -> int:
    """The same: those along variables that no output loop has, whose indices are `output`, nor any
    of the axes that are `held`.
    """
    if not schedule.cluster:
        return 1
    names = {loop_variable(v.type.name) for v in output if isinstance(v.type, Axis)}
    names |= {loop_variable(axis) for axis in held}
    return math.prod(num for name, num in (schedule.cluster or {}).items() if name not in names)


def cluster_along(schedule: Schedule, axis: str) -> int:
    """CTAs that a cluster has along the axis."""
    return (schedule.cluster or {}).get(loop_variable(axis), 1)


def by_one_thread(op: Partition) -> bool:
    """Whether all that it does is to start copies, or products."""
    if op.role == "load":
        return not any(isinstance(inner, ThreadLoad) for inner in walk(op.body))
    # A warpgroup that clears what is not to be multiplied has one thread multiply for itself.
    return op.role == "mma" and not any(isinstance(inner, ClearPanels) for inner in walk(op.body))
