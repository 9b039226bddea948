"""Whether consumers of a chain of products should follow one another once an iteration.

While one has the tensor cores, the others compute what is between their products. If that takes no
longer than the others' products, the tensor cores never wait, and an order of who comes when keeps
it so. If it takes longer they wait in any case, and consumers that wait for their turn lose time.
"""

from __future__ import annotations

from wsdsl.ir.op import Kernel
from wsdsl.lowering.axes import axes_of
from wsdsl.lowering.cooperation import num_cooperating, shared_role
from wsdsl.lowering.model.workload import Work
from wsdsl.schedule import Schedule


def follow_one_another(kernel: Kernel, schedule: Schedule) -> bool:
    """By cycles of an iteration of each loop with a chain; what a schedule says counts."""
    if schedule.order_barriers is not None:
        return schedule.order_barriers
    others = num_cooperating(schedule) - 1
    if not others or shared_role(kernel, schedule) != "rows":
        return False
    work = Work.of(kernel, {})
    asked = work.under({name: axis.size for name, axis in axes_of(kernel).items()})
    chains = [step for step in asked.steps if step.chained]
    # Of one consumer, as of all: each has as large a part of both.
    between = [step.instructions / work.rates.fma_lanes for step in chains]
    return bool(chains) and all(
        cycles <= others * step.tensor for cycles, step in zip(between, chains, strict=True)
    )
