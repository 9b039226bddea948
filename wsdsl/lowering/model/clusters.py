"""How many clusters a card holds, and what those that load tiles for each other gain.

Where tiles are few and narrow, what comes from L2 to an SM is the limit: some 79 bytes a cycle.
CTAs that want the same tile at the same time and lie in one GPC share what crosses to it, which is
why their order matters (`tile_order`); multicast saves more. Measured on an H200, bf16, in the
order that `tile_order` chooses: pairs along the shorter side, which share tiles of the longer one,
make products 1.04 to 1.1 times as quick (1024 x 768 x 4096 by 64 x 96: 12.6 us, not 13.5), pairs
along the longer side slower. Eight, four along the longer side, make them 1.22 to 1.25 times as
quick if their rings are deep: 1024 x 576 x 4096 by 64 x 96 with 10 slots takes 10.9 us, not 11.9,
but 15.7 with 8; 768 x 768 x 8192 19.2, not 22.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wsdsl.ir.op import Value
from wsdsl.ir.tile_ops import ForTiles
from wsdsl.ir.types import Axis
from wsdsl.lowering.model.workload import Loop, Work
from wsdsl.lowering.sharing import cluster_along, cluster_size
from wsdsl.schedule import Schedule

ROOM = {2: 66, 4: 28, 8: 14}
"""Clusters that surely run at the same time. A cluster lies in one GPC, of which an H200 has some
with 18 SMs, some with 16, and one with fewer: it holds 30 of 4, and 15 of 8."""
PAIR, EIGHT = (2, 1), (2, 4)
"""CTAs along the shorter and the longer side."""
GAIN = {PAIR: 1.03, EIGHT: 1.19}
"""By how much quicker operands come: less than in those races, as the sweeps of bf16 have it."""
LEAST_LINES = 16
"""Of a tile, for each CTA; fewer were not measured."""
CYCLES = {PAIR: 450.0, EIGHT: 1000.0}
"""What their start costs, and that they wait for each other."""


@dataclass(frozen=True)
class Sides:
    """The two loops over tiles of the output that are walked together."""

    short: Loop
    long: Loop

    @property
    def names(self) -> tuple[str, str]:
        return axis_of(self.short).name, axis_of(self.long).name


def axis_of(loop: Loop) -> Axis:
    assert isinstance(loop.index.type, Axis)
    return loop.index.type


def sides_of(work: Work) -> Sides | None:
    """If there are two; of equal ones the last is taken to be the shorter."""
    last = [loop for loop in work.nest[-2:] if isinstance(loop.index.type, Axis)]
    if len(last) < 2:
        return None
    short = min(reversed(last), key=lambda loop: work.size(axis_of(loop).dim))
    return Sides(short, next(loop for loop in last if loop is not short))


def cluster_room(size: int, num_sms: int) -> int:
    """Clusters that run at the same time."""
    return min(ROOM.get(size, num_sms), num_sms // size)


def shape_of(work: Work, schedule: Schedule) -> tuple[int, int] | None:
    """Of a cluster: CTAs along the shorter and the longer side; None if there are none, or
    others."""
    sides, size = sides_of(work), cluster_size(schedule)
    if sides is None or size == 1:
        return None
    short, long = (cluster_along(schedule, name) for name in sides.names)
    return (short, long) if short * long == size else None


def shares(work: Work, sides: Sides, shape: tuple[int, int], tile: Mapping[str, int]) -> bool:
    """Whether clusters of the shape divide the tiles evenly, and load parts of them for each
    other."""
    for num, loop, other in zip(shape, (sides.short, sides.long), (sides.long, sides.short)):
        if num == 1:
            continue
        same = [op for op, loops in work.loads if _is_same(work, op.index, loops, loop)]
        lines, rest = divmod(tile[axis_of(other).name], num)
        if work.trips(loop, tile) % num or not same or rest or lines % 8 or lines < LEAST_LINES:
            return False
    return True


def _is_same(work: Work, index: tuple[Value, ...], loops: tuple[Loop, ...], along: Loop) -> bool:
    """Whether a load surely is the same for all tiles along a loop: nothing around it or in its
    index is computed."""
    known = {loop.index for loop in (*work.nest, *loops)} - {along.index}
    whole = all(isinstance(v.type, Axis) or v in known for v in index)
    bounded = any(isinstance(loop, ForTiles) and (loop.start or loop.stop) for loop in loops)
    return whole and not bounded and all(v.type != along.index.type for v in index)
