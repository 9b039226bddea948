"""What no prediction of tiles that are cut is below, for a search that asks few of them for more.

Every step of a loop takes as long or longer where more of the SMs have some, but by no more than
they are more. So the mainloop of a smaller share is a floor where the number of steps is known; and
where all SMs have as many, that of all is one, whatever share has more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wsdsl.ir.tile_scheduler import SplitK
from wsdsl.lowering.busiest import busiest
from wsdsl.lowering.cooperation import cluster_size, num_pingpong_consumers
from wsdsl.lowering.model.loading import gain_of
from wsdsl.lowering.model.predict import Prediction, in_step, tile_cycles
from wsdsl.lowering.model.split_k_cost import least_handing_cycles, least_split_k_cycles
from wsdsl.schedule import Schedule

SHARES = 4
"""Of how many shares of the SMs the mainloop is asked for."""
ROUNDING = 1 - 1e-9
"""Sums that are made in another order differ by less."""


@dataclass(frozen=True)
class LeastCut:
    """Of schedules that cut the tiles of one prediction."""

    tile: Prediction
    known: dict[int, tuple[float, float]] = field(default_factory=dict)

    def any_cycles(self, whole: Schedule) -> float:
        """Of any of them: all SMs are busy from the first step to the last, and sums are handed on
        once.
        """
        asked = self.tile.tile
        mainloop, _ = self._at(SHARES, whole)
        return self._with(
            mainloop * asked.tiles / asked.target.num_sms, least_split_k_cycles(asked)
        )

    def cycles(self, schedule: Schedule) -> float:
        asked, target = self.tile.tile, self.tile.tile.target
        depth, cluster = max(1, asked.depth), cluster_size(schedule)
        even = asked.tiles * depth / target.num_sms
        if schedule.scheduler == "stream_k":
            mainloop, _ = self._at(SHARES, schedule)
            return self._with(even * mainloop / depth, least_split_k_cycles(asked))
        scheduler, clusters = SplitK(schedule.splits or 1), -(-asked.tiles // cluster)
        work = busiest(scheduler, clusters, depth, target.cluster_room(cluster))
        mainloop, results = self._at(int(SHARES * min(1.0, even / work.steps)), schedule)
        cycles = work.steps * mainloop / depth
        if num_pingpong_consumers(schedule) == 1:
            cycles += work.finished * results * _least_share(schedule, depth)
        return self._with(cycles, least_handing_cycles(asked, schedule, work))

    def _with(self, cycles: float, handing: float) -> float:
        asked = self.tile.tile
        steps = 0.0 if asked.uneven > 1 else cycles
        return (asked.start + max(steps, self.tile.memory) + handing) * ROUNDING

    def _at(self, share: int, schedule: Schedule) -> tuple[float, float]:
        """Of a tile's loops and of its results, at so many of the shares, in step."""
        if share not in self.known:
            gain = gain_of(self.tile.tile, schedule, at_once=True)
            whole = in_step(schedule)
            self.known[share] = tile_cycles(self.tile.tile, whole, share / SHARES, gain)
        return self.known[share]


def _least_share(schedule: Schedule, depth: int) -> float:
    """Of the results of a tile, that the one has who has most."""
    return 1 / min(schedule.splits or 1, depth) if schedule.reduction == "parallel" else 1.0
