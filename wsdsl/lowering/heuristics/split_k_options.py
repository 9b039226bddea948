"""Schedules that cut tiles, for what `choose_schedule` tries: stream-K, and split-K where all
pieces run at the same time.

They are left to who asks for them where sizes are not known; where results are added to what is in
memory, as those who sum in pieces of their own do; and in slices with clusters, of which there may
be room for fewer than SMs say. Ping-pong is no help in handing on sums.
"""

from collections.abc import Iterator

from wsdsl.ir.op import Kernel, once, walk
from wsdsl.ir.ops import Store
from wsdsl.lowering.axes import output_nest, ragged_loop
from wsdsl.lowering.cooperation import cluster_size
from wsdsl.lowering.cost_model.predict import Prediction
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.footprint import register_demand
from wsdsl.lowering.heuristics.tile_sizes import has_room, slots_of
from wsdsl.lowering.split_k_rules import why_not_parallel
from wsdsl.schedule import Reduction, Schedule, changed

MARGIN, SHARING_MARGIN = 1.02, 1.01
"""By how much a schedule that cuts tiles, or whose CTAs share their contractions, has to be quicker
than the best that does not: the model is not exact, and whole tiles need no memory, no flags and no
room for all at once. Clusters that share need no memory either.
"""
MOST_SUMS = 128
"""A thread's sums, at the most, so that registers are left to hand them on: split-K of 256 x 192 in
slices spills.
"""
SPLITS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
"""What is tried, and as many as there is room for."""


def may_split(kernel: Kernel, given: Schedule, work: Work) -> bool:
    """Whether cutting is to be tried at all; of sums that are added to a tensor, if it is asked
    for.
    """
    adds = any(isinstance(op, Store) and op.accumulate for op in walk(kernel.body))
    return (
        not kernel.target.has_tensor_memory
        and given.scheduler in (None, "auto", "split_k")
        and given.splits is None
        and (given.reduction is None or given.scheduler == "split_k")
        and work.cut is not None
        and work.sized
        and ragged_loop(kernel) is None
        and not (adds and given.scheduler != "split_k")
    )


def may_share_sums(kernel: Kernel, given: Schedule, whole: Schedule) -> bool:
    """Whether a schedule leaves registers to hand on sums, and has no ping-pong, which is no help;
    or whether this is asked for.
    """
    if kernel.target.has_tensor_memory:
        return False
    if whole.mode == "pingpong" and given.mode != "pingpong":
        return False
    return given.scheduler == "split_k" or register_demand(kernel, whole) <= MOST_SUMS


def split_k_options(
    kernel: Kernel, given: Schedule, option: tuple[Schedule, Prediction]
) -> Iterator[Schedule]:
    """The option cut in every way."""
    whole, tile = option
    asked, cluster = tile.tile, cluster_size(whole)
    room = kernel.target.cluster_room(cluster)
    if given.scheduler != "split_k":
        yield changed(whole, scheduler="stream_k")
    reductions: tuple[Reduction, ...] = (given.reduction,) if given.reduction else ("serial",)
    if not given.reduction and cluster == 1 and _may_reduce_in_parallel(kernel):
        reductions = ("parallel", "serial")
    # Who asks for pieces gets some: only slices have to run at the same time.
    anyhow = given.scheduler == "split_k"
    depth = max(asked.depth, 2) if anyhow else asked.depth
    at_once = min(SPLITS[-1], depth, room * cluster // max(1, asked.tiles))
    most = max(at_once, 2) if anyhow else at_once
    roomy = dict[int, bool]()
    for splits in sorted({*(s for s in SPLITS if s < most), most} - {0, 1}):
        slots = slots_of(asked.depth // splits)
        if slots not in roomy:
            roomy[slots] = not asked.further_parts or has_room(kernel, whole, slots)
        enough = roomy[slots]
        if not enough and not anyhow:
            break
        for reduction in reductions:
            if reduction != "parallel" or splits <= at_once:
                yield changed(whole, scheduler="split_k", splits=splits, reduction=reduction)


@once
def _may_reduce_in_parallel(kernel: Kernel) -> bool:
    return not any(why_not_parallel(kernel, output_nest(kernel)[1]))
