"""Schedules with clusters, for what `choose_schedule` tries: where loading operands takes longer
than their products, or nearly so.

Where sums lie in tensor memory, pairs of CTAs multiply together, and no other clusters are tried.
Elsewhere, where all tiles run at the same time, CTAs that lie together have their operands sooner
(`model/speeds.py`), also without multicast, by which they wait for each other. Elsewhere pairs
load for each other. Clusters are left to who asks for them where sizes are not known, where threads
copy operands, and where consumers are in ping-pong.

Where memory brings what operands are computed from, CTAs that load for each other end together.
"""

import math
from collections.abc import Iterator, Sequence

from wsdsl.ir.hardware.tcgen05_shapes import PAIR_ROWS, PAIR_STEP
from wsdsl.ir.op import Kernel, once
from wsdsl.ir.ops import DimLoop
from wsdsl.ir.types import Axis, Sizes
from wsdsl.lowering.axes import loop_variable, output_nest, ragged_loop
from wsdsl.lowering.check_columns import slice_step
from wsdsl.lowering.cooperation import cluster_splits
from wsdsl.lowering.cost_model.predict import SHARING, Prediction
from wsdsl.lowering.cost_model.speeds import (
    NEARLY_NARROW,
    apart_cycles,
    is_narrow_wave,
    loading_cycles,
)
from wsdsl.lowering.cost_model.workload import Work, Workload
from wsdsl.lowering.cta_pairs import PAIR, why_not_in_pairs
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.product_operands import copied_operands
from wsdsl.lowering.smem_allocations import fits_smem
from wsdsl.lowering.split_k_rules import why_not_by_cluster
from wsdsl.schedule import Schedule, changed

AT_ONCE = ((2, 1), (1, 2), (4, 1), (1, 4), (4, 2), (2, 4))
"""CTAs along the last two loops over tiles of the output."""
FOURS = ((4, 1), (1, 4))
"""Those that also load for each other: each a part of what they have in common."""
PAIRS = ((2, 1), (1, 2))
WHOLE = ("persistent", "dynamic")
"""Schedulers of tiles that nobody cuts."""
CHUNK = 64
LEAST_STEPS = 2
"""Of it, for each of them."""
LEAST_SLOTS, LEAST_SLOTS_DECODED = 4, 3
"""That what the others send has to leave room for; and of what operands are computed from, of
which memory fills no more."""
IN_STEP = 0.0135
"""The share of the time that CTAs which go in step have to save by that, since they wait for each
other (benchmarks/results/one_off_races.md)."""
WIDTH = 16
"""Columns that tiles differ by."""
MANY = 32
"""Of so many tiles in a row, one more is no matter."""


def cluster_options(
    kernel: Kernel, given: Schedule, work: Work, option: tuple[Schedule, Prediction]
) -> Iterator[Schedule]:
    """The option by clusters whose CTAs have tiles of their own."""
    (whole, predicted), tile = option, axis_sizes(kernel, option[0])
    asked = predicted.tile
    slow = loading_cycles(asked) > NEARLY_NARROW * asked.product_cycles
    if not _may_be_in_clusters(given, work) or given.multicast or copied_operands(kernel):
        return
    if kernel.target.has_tensor_memory:
        if given.multicast is None and given.cta_group is None:
            yield from _pairs(kernel, work, option, tile)
        return
    if whole.mode != "pingpong":
        for named in _in_step(given, work, predicted, (*PAIRS, *FOURS), tile):
            yield changed(whole, cluster=named)
    # What comes from memory is no sooner there.
    if not slow or predicted.memory_bound:
        return
    loops = _tiled(work)
    if is_narrow_wave(asked, NEARLY_NARROW) and whole.mode != "pingpong":
        # What is wanted at the same time comes once to a GPC.
        for shape in _shapes(given, work, tile):
            if named := _in_cluster(work, asked.tiles, loops, shape, tile):
                yield changed(whole, cluster=named, multicast=False)
                if given.multicast is not False and shape in FOURS and _is_even(loops, shape, tile):
                    yield changed(whole, cluster=named)
    elif given.multicast is not False and 2 * asked.tiles > work.target.num_sms:
        for shape in PAIRS:
            for loop, num in zip(loops, shape, strict=False):
                trips = work.trips(loop, tile)
                if num > 1 and (trips % num == 0 or trips >= MANY):
                    yield changed(whole, cluster={_variable(loop): num})


def _shapes(given: Schedule, work: Work, tile: Sizes) -> Sequence[tuple[int, int]]:
    """Where launches choose how wide tiles are, fours alone: pairs are slower than none, and so are
    fours where tiles have 64 columns (benchmarks/results/one_off_races.md).
    """
    if (given.tile_n_variants or 1) == 1:
        return AT_ONCE
    return FOURS if max((tile[name] for name in work.columns), default=0) > CHUNK else ()


def _pairs(
    kernel: Kernel, work: Work, option: tuple[Schedule, Prediction], tile: Sizes
) -> Iterator[Schedule]:
    """Of CTAs that multiply together, each with rows of its own: of many tiles, or an even number
    of them."""
    (whole, predicted), roles = option, work.roles
    heights = {tile[name] for name, role in roles.items() if role == "rows"}
    widths = [tile[name] for name, role in roles.items() if role == "columns"]
    if heights != {PAIR_ROWS} or any(width % PAIR_STEP for width in widths):
        return
    if predicted.memory_bound or why_not_in_pairs(kernel):
        return
    for loop in work.nest:
        axis = loop.index.type
        if isinstance(axis, Axis) and roles[axis.name] == "rows":
            trips = work.trips(loop, tile)
            if trips % PAIR == 0 or trips >= MANY:
                yield changed(whole, cluster={_variable(loop): PAIR}, cta_group=PAIR)


def _in_cluster(
    work: Work,
    tiles: int,
    loops: Sequence[DimLoop],
    shape: tuple[int, int],
    tile: Sizes,
    sharing: int = 1,
) -> dict[str, int]:
    """CTAs by variable, if they divide the tiles evenly and all run at the same time. `sharing`: of
    each tile.
    """
    along = dict(zip(loops, shape, strict=False))
    even = len(loops) == 2 and not any(work.trips(loop, tile) % n for loop, n in along.items())
    size = shape[0] * shape[1] * sharing
    if not even or not work.target.run_at_once(tiles * sharing, size):
        return {}
    return {_variable(loop): num for loop, num in along.items() if num > 1}


def _in_step(
    given: Schedule,
    work: Work,
    predicted: Prediction,
    shapes: Sequence[tuple[int, int]],
    tile: Sizes,
    sharing: int = 1,
) -> Iterator[dict[str, int]]:
    """Clusters whose CTAs load for each other what goes with operands that they compute, where it
    saves something that they then end together; not by tiles that are wider for that. `sharing`:
    CTAs of each tile.
    """
    over = any(tile[name] - size >= WIDTH for name, size in work.columns.items())
    if not work.decoding or given.multicast is False or over:
        return
    asked, loops = predicted.tile, _tiled(work)
    cycles = (predicted.mainloop + predicted.epilogue) / sharing
    for shape in shapes:
        alone, together = (
            apart_cycles(asked, predicted.memory, cycles, n) for n in (1, math.prod(shape))
        )
        named = _in_cluster(work, asked.tiles, loops, shape, tile, sharing)
        saves = alone - together > IN_STEP * predicted.cycles / sharing
        if named and saves and _is_even(loops, shape, tile):
            yield named


def _tiled(work: Work) -> list[DimLoop]:
    """The last loops over tiles of the output."""
    return [loop for loop in work.nest[-2:] if isinstance(loop.index.type, Axis)]


def _is_even(loops: Sequence[DimLoop], shape: tuple[int, int], tile: Sizes) -> bool:
    """Whether what CTAs have in common is cut into groups of 8 lines."""
    others = zip(reversed(loops), shape, strict=True)
    axes = [(loop.index.type, num) for loop, num in others]
    return all(isinstance(axis, Axis) and tile[axis.name] % (8 * num) == 0 for axis, num in axes)


def _variable(loop: DimLoop) -> str:
    return loop_variable(loop.index.as_axis.name)


def _may_be_in_clusters(given: Schedule, work: Work) -> bool:
    open_to = (None, "auto", *WHOLE)
    is_open = given.cluster is None and not given.is_whole
    return work.sized and given.scheduler in open_to and is_open


def sharing_options(
    kernel: Kernel, given: Schedule, work: Work, option: tuple[Schedule, Prediction]
) -> Iterator[Schedule]:
    """The option by clusters whose CTAs share the contraction, where tiles are fewer than SMs. Who
    asks for whole tiles asks for sums that are rounded alike at all sizes. `fits_sharing` says
    which are any.
    """
    if not _may_be_in_clusters(given, work) or given.scheduler in WHOLE:
        return
    whole, asked = option[0], option[1].tile
    if kernel.unaligned or whole.mode == "pingpong" or work.cut is None:
        return
    if asked.tiles > work.target.cluster_room(SHARING[-1]):
        return
    if ragged_loop(kernel) is not None or not _can_share(kernel):
        return
    for size in reversed(SHARING):
        if asked.tiles <= work.target.cluster_room(size) and asked.depth >= LEAST_STEPS * size:
            own = {_variable(work.cut): size}
            yield changed(whole, cluster=own)
            tile = axis_sizes(kernel, whole)
            for named in _in_step(given, work, option[1], PAIRS, tile, size):
                yield changed(whole, cluster=own | named)


def fits_sharing(kernel: Kernel, shared: Schedule, asked: Workload) -> bool:
    """Whether a tile's columns come out for so many CTAs, and what they send has room: it takes
    longer to find out than what is predicted of them.
    """
    columns, decodes = asked.columns, asked.decodes
    whole_slices = columns % (slice_step(kernel, shared) * cluster_splits(kernel, shared)) == 0
    if decodes:
        return whole_slices and fits_smem(kernel, shared, LEAST_SLOTS_DECODED, buffers=1)
    return whole_slices and fits_smem(kernel, shared, LEAST_SLOTS)


@once
def _can_share(kernel: Kernel) -> bool:
    return not any(why_not_by_cluster(kernel, output_nest(kernel)[1]))
