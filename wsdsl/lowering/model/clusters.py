"""How many clusters a card holds, and by how much quicker operands come to their CTAs.

Where tiles are few and narrow, what comes from L2 to an SM is the limit: some 73 bytes a cycle.
CTAs that want the same tile at the same time and lie in one GPC share what crosses to it. Which CTA
goes to which GPC is up to the card, but those of a cluster lie in one; so clusters of neighbours
make products up to 1.2 times as quick, without a byte that one CTA loads for another. Multicast
brings nothing on top, and as CTAs then wait for each other's slots, it costs 0 to 6 % in pairs, and
up to 40 % in eights with rings of fewer than ten slots. Measured on an H200, bf16, 22 shapes of 256
to 2048 rows by 10 clusters, us, by tiles of 64 rows: none, the best cluster, the same with
multicast.

    256 x 2048 x 4096 12.0   m=4      10.3         768 x 1024 x 4096 14.5   m=4, n=2 13.3, 13.3
    512 x 1024 x 4096 11.4   m=4      10.3        1024 x 576 x 4096  12.3   m=4, n=2 11.1, 11.4
    768 x 768 x 4096  12.9   m=4, n=2 10.9, 11.2  1024 x 1152 x 4096 17.2   m=2      17.1, 18.1

But four in a row gain by loading one of their tiles for each other, whichever side they lie along,
if their rings are deep and sums long; they take longer to start. In bursts, us, what was chosen
without them, and fours (168 shapes were raced so):

    384 x 2560 x 8192  30.5  n=4, of 128 x 64  27.0     960 x 1024 x 4096  15.5  n=4  13.4
    1536 x 640 x 8192  26.3  m=4, of 64 x 128  24.4     384 x 1024 x 2048   5.5  n=4   6.1

What other multicast costs is not in the model: who asks for a cluster gets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wsdsl.ir.types import Axis
from wsdsl.lowering.cooperation import cluster_along, cluster_size
from wsdsl.lowering.model.workload import Loop, Work
from wsdsl.schedule import Schedule

Shape = tuple[int, int]
"""Of a cluster: CTAs along the shorter side of the output, and along the longer one."""
ALONE: Shape = (1, 1)
PAIR: Shape = (2, 1)
FLAT: Shape = (2, 4)
FOURS: tuple[Shape, ...] = ((4, 1), (1, 4))
GAIN: dict[Shape, float] = {ALONE: 0.92, PAIR: 0.96, (4, 1): 1.05, (4, 2): 1.08, FLAT: 1.04}
"""By how much quicker operands come than `L2_BYTES` a cycle, where all tiles run at the same time.
Pairs and fours along the longer side are no better than none, 2 x 2 and 8 along one side than 4.
These and what follows are fitted to 1000 schedules of 280 races: 3 to 5 % beside what was measured;
what is chosen is 0.8 % behind the best in the mean."""
FLAT_WIDE, WIDE = 1.0, 128
"""Of `FLAT`, where the four have tiles of so many lines."""
MULTICAST_GAIN, MULTICAST_START_CYCLES = 1.04, 400.0
"""Of four in a row that load for each other, and by how much longer they take to start."""
FEW_BYTES = 24 << 10
"""Of a slot, so that there are eight or more: else they wait for each other (64 x 160 by seven
slots takes 1.3 times as long as if each loads for itself)."""
LITTLE = 1.01
"""What pairs bring where products take as long as loading: in the mean of 20 races 0.3 % in bursts
and 0.5 % sustained, but 8 % at 2816 x 576 x 8192 and 15 % at 2048 x 768 x 8192 (128 x 96)."""
DRIFT = 0.0001
"""Less by so much for each tile of the contraction: those who want the same drift apart."""
MEMBER_CYCLES = 35.0
"""By which the start of a cluster takes longer, for each CTA but one."""


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


def is_square(work: Work, sides: Sides) -> bool:
    return work.size(axis_of(sides.short).dim) == work.size(axis_of(sides.long).dim)


def shape_of(work: Work, schedule: Schedule) -> Shape | None:
    """None if clusters lie along something else; of a square output either side is the shorter."""
    if not schedule.cluster:
        return ALONE
    sides, size = sides_of(work), cluster_size(schedule)
    if sides is None:
        return None
    short, long = (cluster_along(schedule, name) for name in sides.names)
    if is_square(work, sides):
        short, long = max(short, long), min(short, long)
    return (short, long) if short * long == size else None


def gain_of(
    work: Work, schedule: Schedule, tile: Mapping[str, int], slot_bytes: float, narrow: bool
) -> float:
    """While CTAs have not drifted apart; `narrow`: loading is the limit, and not just close to it,
    or the reduction is serial.
    """
    shape = shape_of(work, schedule) or ALONE
    if shape == PAIR and not narrow:
        return GAIN[ALONE] * LITTLE
    if shape == FLAT and (sides := sides_of(work)) and tile[sides.names[1]] >= WIDE:
        return FLAT_WIDE
    if narrow and slot_bytes <= FEW_BYTES and loads_together(shape, schedule):
        return MULTICAST_GAIN
    return GAIN.get(shape, GAIN[ALONE])


def loads_together(shape: Shape, schedule: Schedule) -> bool:
    return shape in FOURS and schedule.multicast is not False


def drift(depth: float) -> float:
    """By how much slower operands come over a contraction of so many tiles."""
    return 1 + DRIFT * depth


def cold_share(work: Work, schedule: Schedule, tile: Mapping[str, int]) -> float:
    """Of what comes from memory, how much several clusters want: nothing where one has the whole
    shorter side (256 x 5120 x 4096 in pairs: 20.3 us by 64 x 160, 18.5 by 128 x 80).
    """
    sides, shape = sides_of(work), shape_of(work, schedule)
    if sides is None or shape is None or shape[0] == 1:
        return 1.0
    covered = (sides.short, sides.long) if is_square(work, sides) else (sides.short,)
    along = ((loop, cluster_along(schedule, axis_of(loop).name)) for loop in covered)
    return 0.0 if any(work.trips(loop, tile) <= num for loop, num in along) else 0.5


def starting_cycles(work: Work, schedule: Schedule) -> float:
    shape = shape_of(work, schedule) or ALONE
    more = MULTICAST_START_CYCLES if loads_together(shape, schedule) else 0.0
    return MEMBER_CYCLES * (cluster_size(schedule) - 1) + more


def fits(work: Work, sides: Sides, shape: Shape, tile: Mapping[str, int]) -> bool:
    """Whether clusters of the shape divide the tiles evenly."""
    loops = zip(shape, (sides.short, sides.long), strict=True)
    return not any(work.trips(loop, tile) % num for num, loop in loops)
