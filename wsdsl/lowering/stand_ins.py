"""Few kernels for all numbers of rows: for which number the kernel is chosen that serves a class.

What is best for each class by itself would be some 35 kernels for 60 numbers of rows up to 4096, as
tiles are as high as makes waves come out. So a range of rows (up to 64, 4096, ...) has a few:
schedules are chosen at 4 or 16 sizes of each octave, and of these those are taken that, each size
by the best of them, take the least time in the mean. Then each class is given the one that is
predicted to be the quickest for its largest member. `python -m benchmarks.size_classes` tells what
that costs: 1 to 7 % in the mean, mostly by waves that do not come out. Among the best 20 schedules
of many sizes no 7 would cost less than 3.8 % for N = K = 4096, and no 10 less than 2.7 %; the
fewer waves there are (N = 1024), the more.

A kernel that was chosen for other sizes is right, since kernels take sizes when they are launched.
Only pieces of tiles that wait for each other must all have room at the same time, so a kernel of
such serves no more rows than it was chosen for.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wsdsl.artifact.artifact import StandIns
from wsdsl.artifact.size_class import FINE, Span, row_parts, row_range
from wsdsl.diagnostics import ScheduleError
from wsdsl.ir.op import Kernel
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.model.predict import predict
from wsdsl.lowering.model.workload import Work
from wsdsl.lowering.pipeline import scheduled_tile
from wsdsl.schedule import Schedule

SAMPLES, LAST_SAMPLES = 4, 16
"""Parts of an octave, for the end of each of which a schedule is chosen: of a range's first
octaves, and of the last two, which have three quarters of its sizes."""
MOST_FIRST, MOST = 2, 7
"""Kernels for the first range of rows, where all read the same weights, and for each other."""
NEAR = 1.01
"""No more are taken where the mean is within so much of what each size has by itself."""
REFUSED = 1000.0
"""By how much longer it counts what a kernel can not do: at last no such is taken."""


@dataclass(frozen=True)
class _Choice:
    """What is chosen at the `size` of a dimension."""

    size: int
    kernel: Kernel

    @property
    def schedule(self) -> Schedule:
        return self.kernel.schedule or Schedule()

    def may_serve(self, size: int) -> bool:
        return size <= self.size or self.schedule.reduction != "parallel"


def stand_ins(kernel: Kernel, dim: str, span: Span, others: Mapping[str, int]) -> StandIns:
    """Of a TILE kernel, for the range of rows (`dim`) that a span is of, as far as they begin in
    memory where the span's do. ScheduleError where the schedule fits no size.
    """
    low, high = row_range(span.high)
    halves = _ends(low, high // 4, SAMPLES, span), _ends(high // 4, high, LAST_SAMPLES, span)
    samples = [size for _, size in itertools.chain(*halves)]
    choices = _choices(kernel, dim, samples, others)
    cycles = _cycles(choices, dim, samples, others)
    share = [(last - first) / samples[-1] for first, last in itertools.pairwise([0, *samples])]
    taken = _best(cycles, share, MOST if low else MOST_FIRST)
    ends = list(_ends(low, high, FINE, span))
    table = _cycles([choices[i] for i in taken], dim, [size for _, size in ends], others)
    by_end = [taken[column.index(min(column))] for column in zip(*table, strict=True)]
    apt: dict[int, int] = {}
    for i in {*by_end}:
        own = [size for (_, size), j in zip(ends, by_end, strict=True) if j == i]
        alike = (c for c, line in zip(choices, cycles, strict=True) if line == cycles[i])
        apt[i] = _nearest(own, [c for c in alike if c.may_serve(own[-1])] or [choices[i]]).size
    served = [apt[i] for i in by_end]
    last = [i for i, size in enumerate(served) if [size] != served[i + 1 : i + 2]]
    return StandIns(tuple(ends[i][0] for i in last), tuple(served[i] for i in last))


def _nearest(own: Sequence[int], alike: Sequence[_Choice]) -> _Choice:
    """Of choices that differ in what the model does not know, as the order of tiles, the one at a
    size like those that it will serve.
    """
    middle = own[len(own) // 2]
    return min(alike, key=lambda c: (abs(math.log(c.size / middle)), c.size))


def _ends(low: int, high: int, parts: int, like: Span) -> Iterator[tuple[int, int]]:
    """Of the parts of a range the end, and the largest size that is aligned as the span's."""
    for first, last in row_parts(low, high, parts):
        part = Span(first, last, like.step, like.unlike)
        sizes = (x for x in range(last // like.step * like.step, first - 1, -like.step))
        found = next((x for x in sizes if x in part), None)
        if found is not None:
            yield last, found


def _choices(
    kernel: Kernel, dim: str, samples: Sequence[int], others: Mapping[str, int]
) -> list[_Choice]:
    """One for each schedule that is chosen anywhere, at the largest size."""
    found: dict[Schedule | None, _Choice] = {}
    refused: ScheduleError | None = None
    for size in samples:
        try:
            chosen = scheduled_tile(kernel, {**others, dim: size})
        except ScheduleError as error:
            refused = error
            continue
        found[chosen.schedule] = _Choice(size, chosen)
    if refused is not None and not found:
        raise refused
    return list(found.values())


def _cycles(
    choices: Sequence[_Choice], dim: str, sizes: Sequence[int], others: Mapping[str, int]
) -> list[list[float]]:
    """Of each choice (lines) at each size."""
    # A kernel is taken apart once for each size and orientation.
    like = {(c.schedule.mma, c.schedule.precise_every): c.kernel for c in choices}
    made: list[list[float]] = []
    for c in choices:
        kernel = like[c.schedule.mma, c.schedule.precise_every]
        tile = axis_sizes(c.kernel, c.schedule)
        works = ((size, Work.of(kernel, {**others, dim: size})) for size in sizes)
        made.append([
            predict(work, c.schedule, tile).cycles * (1 if c.may_serve(size) else REFUSED)
            for size, work in works
        ])  # fmt: skip
    return made


def _best(cycles: Sequence[Sequence[float]], share: Sequence[float], most: int) -> list[int]:
    """The lines that together take the least time in the mean, each column by the best of them, in
    relation to the best of all; one after the other, each time with those before looked at again.
    """
    columns = list(zip(*cycles, strict=True))
    ratios = [[own / min(column) * s for own in column] for column, s in zip(columns, share)]

    def mean(taken: Sequence[int]) -> float:
        return sum(min([ratio[i] for i in taken]) for ratio in ratios)

    taken: list[int] = []
    while len(taken) < min(most, len(cycles)):
        rest = [i for i in range(len(cycles)) if i not in taken]
        taken.append(min(rest, key=lambda i: mean([*taken, i])))
        for at in range(len(taken) - 1):
            others = [*taken[:at], *taken[at + 1 :]]
            rest = [i for i in range(len(cycles)) if i not in others]
            taken[at] = min(rest, key=lambda i: mean([*others, i]))
        if mean(taken) <= NEAR * sum(share):
            break
    return taken


def predicted_cycles(kernel: Kernel, schedule: Schedule, sizes: Mapping[str, int]) -> float:
    """Of a TILE kernel by a whole schedule."""
    made = scheduled_tile(dataclasses.replace(kernel, schedule=schedule), sizes)
    return predict(Work.of(made, sizes), schedule, axis_sizes(made, schedule)).cycles
