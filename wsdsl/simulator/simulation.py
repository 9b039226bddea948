"""Runs a SCHEDULED kernel on the CPU, barrier by barrier, in a seeded random order.

Warpgroups are coroutines, TMA and the tensor cores agents that get on at any time. Each run takes
one order; races are found by who has seen what, so that the order hardly matters for finding them.
The CTAs of a cluster run at the same time, and where there are flags those of the grid that have
room. All others share nothing but global memory, and run one after another; where they claim each
other (a "dynamic" grid) those are left out that one in front has claimed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np

from wsdsl.ir.op import Kernel
from wsdsl.record import record
from wsdsl.simulator.cta import Residents
from wsdsl.simulator.interleaving import Run
from wsdsl.simulator.interleaving_script import Agents, Entry, check_script
from wsdsl.simulator.launch_state import at_width, check_left, lend, read_launch
from wsdsl.simulator.reference.bound_arrays import bind_arguments
from wsdsl.simulator.state.gmem_races import GlobalAccesses


@record
class SimulationReport:
    """CTAs and scheduler steps of a run, and how often each warpgroup role ran each op."""

    grid_size: int
    steps: int
    op_counts: dict[str, Counter[str]]


@np.errstate(all="ignore")
def simulate(
    kernel: Kernel,
    arrays: Mapping[str, Any],
    *,
    seed: int = 0,
    num_sms: int | None = None,
    script: Sequence[Entry] | None = None,
    agents: Agents | None = None,
) -> SimulationReport:
    """Run a SCHEDULED kernel on NumPy arrays, and write outputs in place. Raises SimulationError.

    `num_sms`: 4 unless given, or as many as the splits that wait for each other.

    `script` prescribes the order: (key of a warpgroup, number of ops that others can see), one
    entry after another; clusters that run one after another follow their own entries. Where the
    script's warpgroup cannot go on, and after its end, the order is the seed's. `agents` says when
    async copies and MMAs advance: "random", or ("eager" by default with a script) at once
    or ("lazy") only when all warpgroups wait.
    """
    if kernel.level != "scheduled":
        raise ValueError(f"the simulator runs the SCHEDULED level, not {kernel.level}")
    arguments = bind_arguments(kernel, arrays)
    kernel = at_width(kernel, arguments, num_sms)
    launch = read_launch(kernel, arguments, num_sms)
    lend(kernel, arguments, launch)
    if script is not None:
        check_script(script, launch.keys)
    mode = agents or ("random" if script is None else "eager")
    accesses = GlobalAccesses(kernel, arguments.tensors)
    rng = Random(seed)
    steps = 0
    counts: dict[str, Counter[str]] = {}
    at_once = launch.grid_clusters if launch.have_flags else 1
    unstarted = [*range(launch.grid_clusters)]
    while unstarted:
        first, unstarted = unstarted[0], unstarted[max(1, at_once) :]
        size = at_once * launch.cluster, launch.num_warpgroups, launch.num_barriers
        residents = Residents(arguments, accesses, size, rng, seed, kernel.definers)
        residents.unstarted, residents.in_order = unstarted, script is not None
        indices = range(first * launch.cluster, (first + at_once) * launch.cluster)
        at = [(int(e[0].removeprefix("cta").split("/", 1)[0]), e) for e in script or ()]
        entries = [entry for cta, entry in at if cta in indices]
        run = Run(kernel, launch, range(first, first + at_once), residents, entries, mode)
        run.run()
        steps += run.steps
        for wg in run.names.values():
            counts.setdefault(wg.name, Counter()).update(wg.counts)
    check_left(kernel, arguments)
    arguments.write_back()
    return SimulationReport(launch.grid_size, steps, counts)
