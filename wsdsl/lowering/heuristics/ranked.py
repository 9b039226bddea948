"""The ways to fill in what a schedule leaves open, the best first, by best-first search.

No schedule of a tile is quicker than its products, spread over the SMs (`floors`). So tiles stand
in a heap by what they take at the least. The first is taken out: if that was only a floor, it is
looked at, and what comes of it (itself, in clusters, cut into pieces) goes back; if it is
predicted, nothing else is better. What is given out is in the order that predicting everything
would give, and of most tiles nothing but the floor is ever asked for.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice

from wsdsl.ir.op import Kernel
from wsdsl.ir.types import Sizes
from wsdsl.lowering.cost_model.predict import Prediction, floors, least_cut, predict
from wsdsl.lowering.cost_model.speeds import at_launch
from wsdsl.lowering.cost_model.workload import Work
from wsdsl.lowering.footprint import axis_sizes
from wsdsl.lowering.heuristics.cluster_options import cluster_options, fits_sharing, sharing_options
from wsdsl.lowering.heuristics.reduced_row_options import reduced_row_option
from wsdsl.lowering.heuristics.register_room import leaves_room
from wsdsl.lowering.heuristics.schedule_options import Tried, schedule_options
from wsdsl.lowering.heuristics.split_k_options import (
    MARGIN,
    SHARING_MARGIN,
    may_share_sums,
    may_split,
    split_k_options,
)
from wsdsl.lowering.smem_allocations import fits_smem
from wsdsl.schedule import Schedule

NARROW, MOST_NARROW = 2, 4
"""Sizes more, where nothing else has room, and where none of these fits."""
Option = tuple[Schedule, Prediction]
Node = tuple[float, bool, tuple[int, ...], Option | Callable[[], Iterable["Node"]]]
"""Cycles, predicted or at the least; whether they are predicted; its place among equal ones."""


def ranked(
    kernel: Kernel, given: Schedule, sizes: Sizes, limit: float = math.inf, *, narrow: int = 0
) -> Iterator[Option]:
    """Those below `limit` cycles; order of tiles, depths and registers are not filled in yet.
    `narrow`: with so many sizes more of which `schedule_options` says so, in any case.
    """
    work = Work.of(kernel, sizes)
    if (own := reduced_row_option(kernel, given, work)) is not None:
        yield own, predict(work, own, axis_sizes(kernel, own))
    heap = [*_Search(kernel, given, work).nodes(narrow=narrow)]
    heapq.heapify(heap)
    while heap:
        least, _, _, held = heapq.heappop(heap)
        if least >= limit:
            return
        if isinstance(held, tuple):
            yield held
            continue
        for node in held():
            heapq.heappush(heap, node)


def weight(prediction: Prediction) -> float:
    """Cycles, and for those that are cut, or shared by a cluster, what they must be quicker by."""
    if prediction.work.cut:
        return prediction.cycles * MARGIN
    return prediction.cycles * (SHARING_MARGIN if prediction.sharing > 1 else 1.0)


def _has_room(kernel: Kernel, option: Schedule) -> bool:
    """In registers, and for one slot in SMEM."""
    return leaves_room(kernel, option) and fits_smem(kernel, option, 1, buffers=1)


class _Search:
    def __init__(self, kernel: Kernel, given: Schedule, work: Work) -> None:
        self.kernel, self.given, self.work = kernel, given, work
        self.splits = may_split(kernel, given, work)
        self.whole: dict[int, Option | None] = {}

    def nodes(self, *, narrow: int) -> Iterator[Node]:
        kernel, given = self.kernel, self.given
        tried = list(schedule_options(kernel, given, self.work, narrow=narrow))
        # The smallest are last.
        self.any_has_room = any(leaves_room(kernel, t.schedule) for t in reversed(tried))
        if not narrow and not any(_has_room(kernel, t.schedule) for t in reversed(tried)):
            tried = list(schedule_options(kernel, given, self.work, narrow=NARROW))
            self.any_has_room = any(leaves_room(kernel, t.schedule) for t in reversed(tried))
        for n, one in enumerate(tried):
            # Ping-pong is no help in handing on sums: see `may_share_sums`.
            alone = one.team.mode == "pingpong" and given.mode != "pingpong"
            each = floors(self.work, one.team, at_launch(self.work, one.team, one.sizes))
            whole, *others = islice(each, 1 if alone and not given.cuts_tiles else None)
            # The schedule that is given may cut them itself.
            own = min(whole, others[0]) if given.cuts_tiles else whole
            yield own, False, (0, n), partial(self.look, n, one)
            if self.splits and not alone:
                yield others[0] * MARGIN, False, (2, n), partial(self.cut, n, one)
            if not alone and others[1] < math.inf:
                yield others[1] * SHARING_MARGIN, False, (1, n), partial(self.share, n, one)

    def own(self, n: int, tried: Tried) -> Option | None:
        """What is predicted of whole tiles, if they fit."""
        if n not in self.whole:
            fits = leaves_room(self.kernel, tried.schedule) or not self.any_has_room
            schedule = tried.fitted(self.kernel, self.work) if fits else None
            self.whole[n] = schedule and (schedule, self.predict(schedule))
        return self.whole[n]

    def predict(self, schedule: Schedule) -> Prediction:
        return predict(self.work, schedule, axis_sizes(self.kernel, schedule))

    def look(self, n: int, tried: Tried) -> Iterator[Node]:
        if own := self.own(n, tried):
            yield weight(own[1]), True, (0, n), own
            for i, option in enumerate(cluster_options(self.kernel, self.given, self.work, own)):
                predicted = self.predict(option)
                yield weight(predicted), True, (1, n, i), (option, predicted)

    def share(self, n: int, tried: Tried) -> Iterator[Node]:
        if own := self.may_share(n, tried):
            for i, option in enumerate(sharing_options(self.kernel, self.given, self.work, own)):
                predicted, place = self.predict(option), (1, n, 1, i)
                look = partial(self.look_at_shared, place, (option, predicted))
                yield weight(predicted), False, place, look

    def look_at_shared(self, place: tuple[int, ...], option: Option) -> Iterator[Node]:
        schedule, predicted = option
        if fits_sharing(self.kernel, schedule, predicted.tile):
            yield weight(predicted), True, place, option

    def cut(self, n: int, tried: Tried) -> Iterator[Node]:
        own = self.may_share(n, tried)
        if own and own[0].cluster == self.given.cluster:
            least = least_cut(own[1], own[0]) * MARGIN
            yield least, False, (2, n), partial(self.cut_in_all_ways, n, own)

    def cut_in_all_ways(self, n: int, own: Option) -> Iterator[Node]:
        tile = axis_sizes(self.kernel, own[0])
        for i, option in enumerate(split_k_options(self.kernel, self.given, own)):
            predicted = predict(self.work, option, tile)
            if predicted.work.cut:
                yield weight(predicted), True, (2, n, i), (option, predicted)

    def may_share(self, n: int, tried: Tried) -> Option | None:
        may = may_share_sums(self.kernel, self.given, tried.schedule)
        return self.own(n, tried) if may else None
