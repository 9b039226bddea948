"""Whether the hardware deals out tiles as SMs get free (`scheduler="grid"`, or "dynamic"), and
whether the next kernel is let start before this one is over (`Schedule.launch_pdl`).

Where tiles take unlike times (causal attention, ranges that are read from memory) who is done with
short ones does more, if the card lets CTAs claim tiles; as CTAs of their own, tiles would wait for
each one to begin and end.

Where memory is the limit some SMs get more of it than others, and with few rows there is little
that a persistent CTA does for its next tile ahead. With more rows, and short sums, there is, and a
CTA takes as long to begin and end as a kernel.

The next kernel's start hides how a kernel begins. But where memory is the limit and there are fewer
tiles than SMs, loads then take longer, the more so the more SMs idle: CTAs of the next kernel take
SMs in the order in which they get free, so that some which share a way to memory are all busy.
Where those of both kernels find an SM at once, nothing is lost. Kernels that compute operands ask
L2 for the first ones meanwhile (`early_loads.py`), and gain more.
"""

from wsdsl.ir.op import Kernel, once
from wsdsl.ir.ops import ForTiles, Load
from wsdsl.ir.rewriter import made_of
from wsdsl.lowering.axes import ragged_loop
from wsdsl.lowering.cooperation import cluster_size
from wsdsl.lowering.cost_model.predict import Prediction, predicted
from wsdsl.schedule import Schedule, changed

CROWDED = 0.4
"""Longer by this much, for the share of SMs that have no tile, while the next kernel's CTAs are let
start beside a kernel that memory limits: loads then wait for each other."""
CROWDED_DECODING = 0.12
"""The same of kernels that compute operands: a CTA's slots hold less of what memory brings
(`UNDER_WAY` in ring_depth.py), and L2 is asked for the first of it before
(benchmarks/results/one_off_races.md)."""
LEAST_TURN = 15000.0
"""Cycles of a tile, at the least, for CTAs that have but one: some times what a CTA takes to begin
and end."""


def with_dealt_tiles(kernel: Kernel, schedule: Schedule, own: Prediction) -> Schedule:
    """`schedule`: one whose scheduler was left open, and is persistent."""
    claimed = _claimed(kernel, schedule, own)
    if claimed is not None:
        return claimed
    few = own.tile.few_columns and schedule.mode == "cooperative"
    iterations = own.work.iterations
    if few and own.memory_bound and iterations > 1 and own.cycles > LEAST_TURN * iterations:
        return changed(schedule, scheduler="grid")
    return schedule


def _claimed(kernel: Kernel, schedule: Schedule, own: Prediction) -> Schedule | None:
    """The schedule with tiles that are claimed, if they differ, and that is quicker."""
    if own.work.iterations == 1 or not own.tile.product_cycles:
        return None
    if not own.tile.target.claims_clusters or ragged_loop(kernel) is not None:
        return None
    dynamic = changed(schedule, scheduler="dynamic")
    quicker = own.tile.uneven > 1 and predicted(own.tile, dynamic, own.gain).cycles < own.cycles
    return dynamic if quicker or _differ_by_data(kernel) else None


@once
def _differ_by_data(kernel: Kernel) -> bool:
    """Whether a loop's bounds are read from memory: how long tiles take is not known."""
    made = kernel.definers
    bounds = (v for op in kernel.of(ForTiles) for v in (op.start, op.stop) if v)
    return any(isinstance(op, Load) for _, op in made_of(bounds, made, lambda _: True))


def with_overlap(schedule: Schedule, own: Prediction) -> Schedule:
    """Nothing is changed where the next kernel may load early (`constant`): that is worth more."""
    if schedule.launch_pdl is not None or schedule.pdl_independent:
        return schedule
    size = cluster_size(schedule)
    crowded = 2 * own.work.workers > own.tile.target.cluster_room(size)
    one_wave = own.memory_bound and own.work.iterations == 1 and not own.work.cut and crowded
    decodes, rates = own.tile.decodes, own.tile.rates
    crowding = CROWDED_DECODING if decodes else CROWDED
    lost = crowding * (1 - own.busy) * own.microseconds
    hidden = rates.kernel_ns - rates.dependent_kernel_ns
    # What L2 is asked for early is there when loads begin.
    hidden += rates.dram_loaded_ns if decodes else 0.0
    if one_wave and lost > hidden / 1000:
        return changed(schedule, launch_pdl=False)
    return schedule
