"""Few kernels for all numbers of rows: which serves a class.

What is best for each class by itself would be some 35 kernels for 60 numbers of rows up to 4096, as
tiles are as high as makes waves come out. So a range of rows (up to 64, 4096, ...) has a few. At
some sizes of each octave the best schedules are candidates, and not the very best alone: one that
is nearly the best in many places is worth more than those that are first in one. How long each
takes is asked for every class of the range, and those are taken that, each class by the best of
them, take the least time in the mean, in relation to the best of all candidates.

The cost is wave quantization. So if rows can be along the MMA's N, candidates are kernels whose
tile extent each launch chooses (`Schedule.tile_n_variants`): of other kernels no 7 cost less than
5 % for N = 1024, K = 4096. `python -m benchmarks.size_classes` measures more.

A kernel that was chosen for other sizes is right, since kernels take sizes when they are launched.
Only pieces of tiles that wait for each other must all have room at the same time, so a kernel of
such serves no more rows than it was chosen for.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from wsdsl.artifact.artifact import Representatives
from wsdsl.artifact.shape_bucket import FINE, FIRST, Span, row_parts, row_range
from wsdsl.background import spread
from wsdsl.diagnostics import ScheduleError
from wsdsl.ir.op import Kernel
from wsdsl.ir.types import Axis, Sizes
from wsdsl.lowering.axes import axes_of, loop_variable, output_nest
from wsdsl.lowering.check_widths import most_widths_of
from wsdsl.lowering.cooperation import cluster_along
from wsdsl.lowering.cost_model.predict import predict
from wsdsl.lowering.cost_model.speeds import at_launch
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.heuristics.orientation import may_be_swapped
from wsdsl.lowering.passes.choose_schedule import nearly_best
from wsdsl.lowering.pipeline import before_choice, scheduled_tile
from wsdsl.record import record
from wsdsl.schedule import Schedule, changed

SAMPLES, LAST_SAMPLES = 2, 8
"""Parts of an octave, for the end of each of which schedules are chosen: of a range's first
octaves, and of the last two, which have three quarters of its sizes."""
NEARLY, MOST_EACH = 1.1, 12
"""Candidates of a size take up to so many times as long as its best, and are so many of each
orientation at the most."""
MOST_FIRST, MOST = 2, 7
"""Kernels for the first range of rows, where all read the same weights, and for each other."""
NEAR = 1.002
"""No more are taken where the mean is within so much of what each size has by itself."""
SWEEPS = 3
"""How often those that were taken are looked at again, at the most, beside each that is added."""
REFUSED = 1000.0
"""By how much longer it counts what a kernel can not do: at last no such is taken."""


class _Part(NamedTuple):
    """Rows that are not told apart, and the largest number of them that is aligned as all are."""

    first: int
    last: int
    size: int


@record
class _Candidate:
    """A schedule, whatever the order of its tiles, which the model does not know: `chosen` has it
    with that, by the size that it was chosen for. `kernel` has its roles.
    """

    kernel: Kernel
    chosen: dict[int, Schedule]

    @property
    def schedule(self) -> Schedule:
        return next(iter(self.chosen.values()))

    def may_serve(self, size: int, chosen_for: int) -> bool:
        return size <= chosen_for or self.schedule.reduction != "parallel"

    def nearest(self, sizes: Sequence[int]) -> int:
        """Of those that it was chosen for, the one that is most like those that it will serve."""
        middle = sizes[len(sizes) // 2]
        able = [size for size in self.chosen if self.may_serve(sizes[-1], size)]
        return min(able or self.chosen, key=lambda size: (abs(math.log(size / middle)), size))


def stand_ins(kernel: Kernel, dim: str, span: Span, others: Sizes) -> Representatives:
    """Of a TILE kernel, for the range of rows (`dim`) that a span is of, as far as they begin in
    memory where the span's do. ScheduleError where the schedule fits no size.
    """
    low, high = row_range(span.high)
    octaves = _parts(low, high // 4, SAMPLES, span), _parts(high // 4, high, LAST_SAMPLES, span)
    samples = [part.size for part in itertools.chain(*octaves)]
    candidates = _candidates(kernel, dim, samples, others)
    parts = list(_parts(low, high, FINE, span))
    sizes, rows = [part.size for part in parts], [part.last - part.first + 1 for part in parts]
    cycles = spread(partial(_cycles, dim=dim, sizes=sizes, others=others), candidates)
    taken, longer = _best(cycles, rows, MOST if low else MOST_FIRST)
    by_part = [min(taken, key=lambda i: cycles[i][at]) for at in range(len(parts))]
    used = list(dict.fromkeys(by_part))
    stand_in = [
        candidates[i].nearest([s for s, own in zip(sizes, by_part, strict=True) if own == i])
        for i in used
    ]
    ends = [at for at, i in enumerate(by_part) if [i] != by_part[at + 1 : at + 2]]
    return Representatives(
        low,
        tuple(parts[at].last for at in ends),
        tuple(used.index(by_part[at]) for at in ends),
        tuple(stand_in),
        tuple(candidates[i].chosen[size] for i, size in zip(used, stand_in, strict=True)),
        f"{100 * (longer - 1):.1f} %",
    )


def _parts(low: int, high: int, parts: int, like: Span) -> Iterator[_Part]:
    """Of a range, those with sizes that are aligned as the span's."""
    for first, last in row_parts(low, high, parts):
        span = Span(first, last, like.step, like.unlike)
        sizes = (x for x in range(last // like.step * like.step, first - 1, -like.step))
        found = next((x for x in sizes if x in span), None)
        if found is not None:
            yield _Part(first, last, found)


def _candidates(
    kernel: Kernel, dim: str, samples: Sequence[int], others: Sizes
) -> list[_Candidate]:
    """Those of several widths, where there are any: others serve few sizes well."""
    kernel, sized = before_choice(kernel), [{**others, dim: size} for size in samples]
    for way in (*_of_widths(kernel, dim, samples[0]), kernel):
        found, same = dict[Schedule, _Candidate](), dict[Kernel, Kernel]()
        each = spread(partial(_nearly_best, way), sized)
        for size, (own, schedule) in ((s, x) for s, best in zip(samples, each) for x in best):
            like = changed(schedule, raster=None, swizzle=None, launch_pdl=None)
            candidate = found.setdefault(like, _Candidate(same.setdefault(own, own), {}))
            candidate.chosen.setdefault(size, schedule)
        if found:
            return list(found.values())
    nearly_best(kernel, sized[-1], NEARLY, MOST_EACH)  # raises why
    raise AssertionError(samples)


def _nearly_best(kernel: Kernel, sizes: Sizes) -> list[tuple[Kernel, Schedule]]:
    """None where no schedule fits these sizes."""
    try:
        return nearly_best(kernel, sizes, NEARLY, MOST_EACH)
    except ScheduleError:
        return []


def _of_widths(kernel: Kernel, dim: str, rows: int) -> Iterator[Kernel]:
    """The kernel with as many widths of tiles as there are, if rows can be along N. Few rows,
    the first of which are so many, are one tile anyhow.
    """
    given = kernel.schedule or Schedule()
    axes = [loop.index.type for loop in output_nest(kernel)[0]]
    sides = [axis for axis in axes if isinstance(axis, Axis)]
    own, others = ([a for a in sides if (a.dim == dim) == is_own] for is_own in (True, False))
    if rows <= FIRST or given.tile_n_variants is not None or len(own) != 1 or len(others) != 1:
        return
    if given.mma_m is None and may_be_swapped(kernel, own[0].name, others[0].name):
        variable, widths = loop_variable(others[0].name), most_widths_of(kernel)
        schedule = changed(given, mma_m=variable, tile_n_variants=widths)
        yield dataclasses.replace(kernel, schedule=schedule)


def _cycles(candidate: _Candidate, dim: str, sizes: Sequence[int], others: Sizes) -> list[float]:
    """At each size: those that come to as many tiles take as long as the largest of them."""
    kernel, schedule = candidate.kernel, candidate.schedule
    widest, known = axis_sizes(kernel, schedule), dict[tuple[int, ...], float]()
    walked = [loop.index.type for loop in output_nest(kernel)[0]]
    axes = [axis for axis in axes_of(kernel).values() if axis.dim == dim]
    is_walked = all(axis in walked and widest[axis.name] for axis in axes)
    found = list[float]()
    for size in reversed(sizes):
        sized = {**others, dim: size}
        varies = schedule.tile_n_variants is not None
        tile = at_launch(Work.of(kernel, sized), schedule, widest) if varies else widest
        steps = [tile[axis.name] * cluster_along(schedule, axis.name) for axis in axes]
        steps = steps if is_walked else [1]
        tiles = *steps, *[-(-size // step) for step in steps]
        if tiles not in known:
            known[tiles] = predict(Work.of(kernel, sized), schedule, widest).cycles
        is_able = any(candidate.may_serve(size, chosen_for) for chosen_for in candidate.chosen)
        found.append(known[tiles] * (1 if is_able else REFUSED))
    return found[::-1]


def _best(
    cycles: Sequence[Sequence[float]], share: Sequence[float], most: int
) -> tuple[list[int], float]:
    """The candidates that together take the least time in the mean, each size by the best of them,
    in relation to the best of all; one after the other, each time with those before looked at
    again. And how much longer that is.
    """
    whole, least = sum(share), [min(column) for column in zip(*cycles, strict=True)]
    ratios = [[c / b * s for c, b, s in zip(own, least, share, strict=True)] for own in cycles]

    def best_beside(others: Sequence[int]) -> int:
        held = [*map(min, *(ratios[i] for i in others))] if len(others) > 1 else None
        held = held or (ratios[others[0]] if others else [math.inf] * len(share))
        rest = [i for i in range(len(ratios)) if i not in others]
        return min(rest, key=lambda i: sum(map(min, held, ratios[i])))

    taken, longer = list[int](), math.inf
    while len(taken) < min(most, len(ratios)) and longer > NEAR:
        taken.append(best_beside(taken))
        for _ in range(SWEEPS):
            before = list(taken)
            for at in range(len(taken)):
                taken[at] = best_beside([*taken[:at], *taken[at + 1 :]])
            if taken == before:
                break
        longer = sum(map(min, *(ratios[i] for i in taken), ratios[taken[0]])) / whole
    return taken, longer


def predicted_cycles(kernel: Kernel, schedule: Schedule, sizes: Sizes) -> float:
    """Of a TILE kernel by a whole schedule."""
    made = scheduled_tile(dataclasses.replace(kernel, schedule=schedule), sizes)
    return predict(Work.of(made, sizes), schedule, axis_sizes(made, schedule)).cycles
