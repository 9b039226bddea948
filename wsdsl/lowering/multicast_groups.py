"""Which part of a multicast tile this CTA copies, and to whom; and who copies to its slots.

A group has the (size, stride) of the ranks that want the same tile: the digits of a mixed number in
which they differ.
"""

import math
from itertools import product

from wsdsl.ir.hardware.swizzle import PACKED_LINES
from wsdsl.ir.op import Value
from wsdsl.lowering.builder import Builder
from wsdsl.record import record

Group = tuple[tuple[int, int], ...]
SWIZZLED_LINES = 8
"""Within which bits of the address are exchanged."""


def comes_out_even(lines: int, num: int, packed: object) -> bool:
    """Whether so many CTAs can each bring a part of a tile of so many lines."""
    return lines % (num * (PACKED_LINES if packed else SWIZZLED_LINES)) == 0


@record
class Share:
    """`num` CTAs want a tile; `mask` has their ranks, `part` is this one's place among them."""

    num: int
    mask: Value
    part: Value


def share_of(group: Group, b: Builder) -> Share:
    """This CTA's part of a tile that its group wants."""
    num = math.prod(size for size, _ in group)
    steps = [range(0, size * stride, stride) for size, stride in group]
    pattern = sum(1 << sum(at) for at in product(*steps))
    rank = b.rank()
    part, own = b.integer(0), b.integer(0)
    for size, stride in group:
        place = _digit(rank, size, stride, b)
        part = b.plus(b.times(part, size, "part"), place, "part")
        own = b.plus(own, b.times(place, stride, "own"), "own")
    base = b.map("sub", rank, own, wish="base")
    mask = b.map("shl", b.integer(pattern), base, wish="mask")
    return Share(num, mask, part)


def _digit(rank: Value, size: int, stride: int, b: Builder) -> Value:
    if stride > 1:
        rank = b.map("floordiv", rank, b.integer(stride), wish="place")
    return b.map("mod", rank, b.integer(size), wish="place")


def _distances(groups: tuple[Group, ...]) -> list[tuple[tuple[int, int, int], ...]]:
    """The ranks that share a tile with this one, itself first: how many steps on, by digit."""
    found: dict[tuple[tuple[int, int, int], ...], None] = {(): None}
    for group in groups:
        for steps in product(*(range(size) for size, _ in group)):
            digits = zip(group, steps, strict=True)
            found[tuple((*g, step) for g, step in digits if step)] = None
    return list(found)


def num_peers(groups: tuple[Group, ...]) -> int:
    """CTAs that copy to a CTA's slots, itself among them."""
    return len(_distances(groups))


def peer_mask(groups: tuple[Group, ...], cluster: int, b: Builder) -> tuple[Value | None]:
    """The mask of their ranks; None where there is no other."""
    num = len(_distances(groups))
    if num == 1:
        return (None,)
    if num == cluster:
        return (b.integer((1 << cluster) - 1),)
    first, *others = (share_of(group, b).mask for group in groups)
    for mask in others:
        first = b.map("or", first, mask, wish="mask")
    return (first,)


def peers_of(groups: tuple[Group, ...], cluster: int, b: Builder) -> tuple[Value | None, ...]:
    """Their ranks; None is the CTA itself, where there is no other."""
    distances = _distances(groups)
    if len(distances) == 1:
        return (None,)
    if len(distances) == cluster:
        return tuple(b.integer(rank) for rank in range(cluster))
    rank = b.rank()
    found: list[Value] = []
    for steps in distances:
        peer = rank
        for size, stride, step in steps:
            own = _digit(rank, size, stride, b)
            there = b.map("mod", b.plus(own, step, "there"), b.integer(size), wish="there")
            away = b.map("sub", there, own, wish="away")
            peer = b.map("add", peer, b.times(away, stride, "away"), wish="peer")
        found.append(peer)
    return tuple(found)
