"""Schedules with clusters, for what `choose_schedule` tries: where tiles are so few that all run at
the same time, but on most SMs, and loading their operands takes longer than their products; pairs
also where it takes nearly as long.

They are left to who asks for them where sizes are not known, and where they were not measured:
threads copy operands, or consumers are in ping-pong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wsdsl.ir.op import Kernel, once
from wsdsl.ir.types import Axis
from wsdsl.lowering.axes import loop_variable
from wsdsl.lowering.check_columns import slice_step
from wsdsl.lowering.choice.split_k_options import MOST_SUMS
from wsdsl.lowering.footprint import accumulator_registers, fits_smem
from wsdsl.lowering.model.clusters import (
    FEW_BYTES,
    FLAT,
    FOURS,
    GAIN,
    PAIR,
    Shape,
    Sides,
    axis_of,
    fits,
    sides_of,
)
from wsdsl.lowering.model.loading import NEARLY_NARROW, loading_cycles
from wsdsl.lowering.model.predict import Prediction, is_narrow_wave
from wsdsl.lowering.model.workload import Work
from wsdsl.lowering.output_nest import output_nest
from wsdsl.lowering.product_operands import copied_operands
from wsdsl.lowering.split_k_rules import why_not_by_cluster
from wsdsl.schedule import Schedule, changed

SHARING = (2, 4, 8)
"""CTAs that share a contraction."""
LEAST_STEPS = 2
"""Of it, for each of them."""
LEAST_SLOTS = 4
"""That what the others send has to leave room for: 1024 x 1536 x 4096 by 128 x 192 with 3 takes
22.5 us, where whole tiles of half the width take 19.7.
"""
LONG = 30_000
"""Cycles of a tile's steps from which on CTAs drift apart that load for themselves. With multicast
384 x 1536 x 8192 by 64 x 96 takes 20.1 us with two of a cluster along m and four along n, without
21.8; 2048 x 384 x 16384 in pairs along n 45.6 and 47.7. Not so pairs along m (1024 x 1152 x 16384
64.0 and 60.2), or shorter sums (384 x 1280 x 4096 10.4 and 10.6). Of other shapes than `PAIR` and
`FLAT` it was not seen.
"""
DEEP = 10
"""Slots without which eight CTAs wait for each other more than they gain."""
CROSSED, MANY = 1.2, 32
"""Where lines take so much longer since they cross those of L2, pairs load for each other: 5000 x
5000 x 5000 by 128 x 256 takes 396 instead of 497 us, 1000 x 1000 x 1000 by 64 x 128 7.3 instead of
9.5. Of so many tiles in a row, one more is no matter."""
TOGETHER_SLOTS = 8
"""The same of four, where they load for each other."""
MOST_COLD = 0.15
"""The share of memory in what comes to fours that load for each other: 192 x 4096 x 4096 by 64 x
104, n=4, takes as long as without, and 320 x 3200 x 7168 by 80 x 128, m=4, 1.02 to 1.15 times as
long."""


def cluster_options(
    kernel: Kernel,
    given: Schedule,
    work: Work,
    option: tuple[Schedule, Prediction],
    tile: Mapping[str, int],
) -> Iterator[Schedule]:
    """The option in every cluster; `tile`: elements of a tile along every axis under it."""
    yield from _sharing_options(kernel, given, work, *option)
    yield from _crossing_options(kernel, given, work, *option, tile)
    whole, predicted = option
    asked = predicted.tile
    is_open = given.cluster is None and not given.multicast
    is_open = is_open and given.scheduler in (None, "auto", "persistent")
    is_open = is_open and is_narrow_wave(asked, NEARLY_NARROW)
    if not is_open or not work.sized or copied_operands(kernel):
        return
    if whole.mode == "pingpong" or predicted.memory_bound or (sides := sides_of(work)) is None:
        return
    narrow = is_narrow_wave(asked)
    for shape in GAIN if narrow else [PAIR]:
        made = _in_cluster(work, whole, asked.tiles, sides, shape, tile)
        if made is not None:
            together = predicted.mainloop >= LONG and _stays_together(kernel, made, sides, shape)
            gained = together and _all_shared(sides, shape, tile)
            yield made if gained else changed(made, multicast=False)
    gaining = narrow and asked.cold_bytes <= MOST_COLD * asked.operand_bytes
    gaining = gaining and asked.slot_bytes <= FEW_BYTES
    for shape in FOURS if gaining and _has_slots(kernel, whole, TOGETHER_SLOTS) else ():
        made = _in_cluster(work, whole, asked.tiles, sides, shape, tile)
        if made is not None and _all_shared(sides, shape, tile):
            yield made


def _in_cluster(
    work: Work,
    whole: Schedule,
    tiles: int,
    sides: Sides,
    shape: Shape,
    tile: Mapping[str, int],
) -> Schedule | None:
    """If there are so many of them, and they all run at the same time."""
    size = shape[0] * shape[1]
    if size == 1 or not work.target.run_at_once(tiles, size) or not fits(work, sides, shape, tile):
        return None
    named = dict(zip((sides.short, sides.long), shape, strict=True))
    ordered = [(loop_variable(axis_of(x).name), named[x]) for x in work.nest if x in named]
    return changed(whole, cluster={name: num for name, num in ordered if num > 1})


def _stays_together(kernel: Kernel, option: Schedule, sides: Sides, shape: Shape) -> bool:
    """Whether the CTAs of a cluster gain by multicast, since they wait for each other."""
    if shape == PAIR:
        return axis_of(sides.short).role == "columns"
    return shape == FLAT and _has_slots(kernel, option, DEEP)


def _has_slots(kernel: Kernel, option: Schedule, num: int) -> bool:
    stages = option.stages or num
    return stages >= num and fits_smem(kernel, option, stages)


def _all_shared(sides: Sides, shape: Shape, tile: Mapping[str, int]) -> bool:
    """Whether all that CTAs of a cluster have in common is cut evenly, into groups of 8 lines."""
    others = zip(shape, (sides.long, sides.short), strict=True)
    return not any(tile[axis_of(other).name] % (8 * num) for num, other in others)


def _crossing_options(
    kernel: Kernel,
    given: Schedule,
    work: Work,
    whole: Schedule,
    predicted: Prediction,
    tile: Mapping[str, int],
) -> Iterator[Schedule]:
    """The option by pairs that load for each other, where lines cross those of L2 and loading is
    the limit; others gain little or nothing by it.
    """
    is_open = given.cluster is None and given.multicast is not False
    is_open = is_open and given.scheduler in (None, "auto", "persistent")
    is_open = is_open and work.sized and not copied_operands(kernel)
    asked = predicted.tile
    slow = loading_cycles(asked) > NEARLY_NARROW * asked.product_cycles
    slow = slow and 2 * asked.tiles > work.target.num_sms
    if not (is_open and slow and asked.crossing >= CROSSED):
        return
    for loop in work.nest[-2:]:
        axis, num = loop.index.type, work.trips(loop, tile)
        if isinstance(axis, Axis) and (num % 2 == 0 or num >= MANY):
            yield changed(whole, cluster={loop_variable(axis.name): 2})


def _sharing_options(
    kernel: Kernel, given: Schedule, work: Work, whole: Schedule, predicted: Prediction
) -> Iterator[Schedule]:
    """The option by clusters whose CTAs share the contraction, where tiles are fewer than SMs. Who
    asks for "persistent" asks for sums that are rounded alike at all sizes.
    """
    is_open = given.cluster is None and given.scheduler in (None, "auto")
    if not is_open or not work.sized or kernel.unaligned or whole.mode == "pingpong":
        return
    asked = predicted.tile
    if work.cut is None or asked.tiles > work.target.cluster_room(SHARING[0]):
        return
    if accumulator_registers(kernel, whole) > MOST_SUMS or not _can_share(kernel):
        return
    assert isinstance(work.cut.index.type, Axis)
    variable = loop_variable(work.cut.index.type.name)
    for size in SHARING:
        option = changed(whole, cluster={variable: size})
        if (
            asked.tiles <= work.target.cluster_room(size)
            and asked.depth >= LEAST_STEPS * size
            and asked.columns % (slice_step(kernel, option) * size) == 0
            and fits_smem(kernel, option, LEAST_SLOTS)
        ):
            yield option


@once
def _can_share(kernel: Kernel) -> bool:
    return not any(why_not_by_cluster(kernel, output_nest(kernel)[1]))
