"""Choose the schedules to measure: the cost model's best of each mode or split scheduler, variants
of the leaders with adjacent tile widths and stages, and the best with transformed operands in SMEM.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Set
from itertools import islice

from wsdsl.diagnostics import WsdslError
from wsdsl.ir.op import Kernel
from wsdsl.ir.ops import Contract
from wsdsl.ir.types import Sizes
from wsdsl.lowering.axes import axes_of, loop_variable
from wsdsl.lowering.heuristics.ranked import ranked
from wsdsl.lowering.heuristics.tile_sizes import with_fixed_tiles
from wsdsl.lowering.passes.choose_schedule import at_least_one, completed
from wsdsl.lowering.pipeline import scheduled_tile
from wsdsl.lowering.product_operands import computed_operands
from wsdsl.schedule import Schedule

DEFAULT_COUNT = 48
SHARES = {"cooperative": 0.35, "pingpong": 0.25, "stream_k": 0.1, "split_k": 0.1}
"""Share of the candidates per mode or split scheduler; variants of the leaders are the rest."""
MAX_PER_TILE = 2
"""Candidates per tile, which differ in the multicast of a cluster."""
MAX_IN_SMEM = 4
"""Candidates with operands that are transformed in SMEM."""
LEADERS = 3
"""Schedules whose variants are tried."""
WIDTH_STEPS = (-64, -32, -16, 16, 32)
DEPTH_STEPS = (-2, -1, 1, 2)


def candidates(
    kernel: Kernel, given: Schedule | None, sizes: Sizes, most: int = DEFAULT_COUNT
) -> list[Schedule]:
    """Return distinct complete schedules by decreasing likelihood to be fastest. `kernel` is at the
    level TILE. The first is the choice of the cost model.
    """
    found: dict[Schedule, None] = {}
    for schedule in _all(kernel, given or Schedule(), sizes, most):
        found[schedule] = None
        if len(found) == most:
            break
    return list(found)


def _all(kernel: Kernel, given: Schedule, sizes: Sizes, most: int) -> Iterator[Schedule]:
    posed = dataclasses.replace(kernel, schedule=given)
    chosen = scheduled_tile(posed, sizes)
    assert chosen.schedule is not None
    yield chosen.schedule
    known = at_least_one(sizes)
    settled = dataclasses.replace(given, mma_m=chosen.schedule.mma_m)
    best: list[Schedule] = [chosen.schedule]
    taken = Counter[str]()
    for option, _ in ranked(chosen, with_fixed_tiles(chosen, settled)[0], known):
        way = (option.scheduler if option.cuts_tiles else option.mode) or ""
        tiles = f"{way} {option.tile}"
        if taken[way] < SHARES.get(way, 0.1) * most and taken[tiles] < MAX_PER_TILE:
            schedule, findings = completed(chosen, option, known)
            if not findings:
                taken.update((way, tiles))
                best.append(schedule)
    leaders = list(dict.fromkeys(best))[:LEADERS]
    sides = {loop_variable(name) for name, axis in axes_of(chosen).items() if axis.role}
    near = [*_transformed_in_smem(posed, given, sizes)]
    near += [n for leader in leaders for n in _adjacent(posed, given, leader, sides, sizes)]
    yield from _interleaved(list(dict.fromkeys(best)), near)


def _transformed_in_smem(kernel: Kernel, given: Schedule, sizes: Sizes) -> Iterator[Schedule]:
    """The cost model's best with all transformed operands in SMEM, where the user left that open
    and an operand is transformed.
    """
    computed = any(computed_operands(kernel, op) for op in kernel.of(Contract))
    if given.operand_transform is not None or not computed:
        return
    in_smem = dataclasses.replace(given, operand_transform="smem")
    try:
        chosen = scheduled_tile(dataclasses.replace(kernel, schedule=in_smem), sizes)
    except WsdslError:
        return
    settled = dataclasses.replace(in_smem, mma_m=chosen.schedule and chosen.schedule.mma_m)
    known = at_least_one(sizes)
    options = ranked(chosen, with_fixed_tiles(chosen, settled)[0], known)
    whole = (completed(chosen, option, known) for option, _ in options)
    yield from islice((schedule for schedule, findings in whole if not findings), MAX_IN_SMEM)


def _interleaved(best: list[Schedule], near: list[Schedule]) -> Iterator[Schedule]:
    """Yield the leaders, then alternate between the lists."""
    yield from best[:LEADERS]
    rest = best[LEADERS:]
    for i in range(max(len(rest), len(near))):
        yield from rest[i : i + 1]
        yield from near[i : i + 1]


def _adjacent(
    kernel: Kernel, given: Schedule, leader: Schedule, sides: Set[str], sizes: Sizes
) -> Iterator[Schedule]:
    """Vary stages and tile widths. `sides`: loop variables of the result. Given values stay; for
    another width the compiler chooses the stages.
    """
    tile = dict(leader.tile or {})
    open_ = dataclasses.replace(leader, stages=given.stages, registers=given.registers)
    changes = [
        dataclasses.replace(leader, stages=leader.stages + step)
        for step in DEPTH_STEPS
        if leader.stages and given.stages is None and 1 < leader.stages + step <= 32
    ]
    for name, size in tile.items():
        if name in sides and name not in (given.tile or {}):
            tiles = (tile | {name: size + step} for step in WIDTH_STEPS if size + step >= 16)
            changes += [dataclasses.replace(open_, tile=other) for other in tiles]
    for change in changes:
        try:
            found = scheduled_tile(dataclasses.replace(kernel, schedule=change), sizes).schedule
        except WsdslError:
            continue
        if found is not None:
            yield found
