"""Indices as functions of the lane: quotients and remainders by divisors of the tile's start.

The index of a thread is a number that all threads share, plus a term of its lane. In a tile that
begins at a multiple of 16, `index(n) % 16 // 8` is known for every element of every lane: for rows
of an accumulator 0, 1 and again. Elements whose difference is the same in all lanes take one
register.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from wsdsl.ir.types import THREADS
from wsdsl.record import record


@record
class Lanewise:
    """`own`: the term of each thread of a warpgroup, added to a number that all threads share; that
    number is a multiple of `shared` (0 if it is 0).
    """

    own: tuple[int, ...]
    shared: int

    def moved(self, multiple: int, by: int = 0) -> Lanewise:
        """With another shared number, a multiple of this, added, and `by`."""
        return Lanewise(tuple(x + by for x in self.own), math.gcd(self.shared, multiple))

    def times(self, number: int) -> Lanewise:
        return Lanewise(tuple(x * number for x in self.own), abs(self.shared * number))

    def plus(self, other: Lanewise) -> Lanewise:
        own = tuple(a + b for a, b in zip(self.own, other.own, strict=True))
        return Lanewise(own, math.gcd(self.shared, other.shared))

    @property
    def unit(self) -> int:
        """The largest known divisor of all indices; 0 if all are 0."""
        return math.gcd(self.shared, *self.own)

    @property
    def most(self) -> int | None:
        """The largest of them, where that is known."""
        return None if self.shared else max(self.own)


def rows_of_lanes(apart: int) -> Lanewise:
    """First rows of threads in an accumulator, whose warps' are so far apart."""
    return Lanewise(tuple(t // 32 * apart + t % 32 // 4 for t in range(THREADS)), 0)


def columns_of_lanes() -> Lanewise:
    return Lanewise(tuple(t % 4 * 2 for t in range(THREADS)), 0)


def divided(
    fn: str, number: int, lanes: Lanewise, offsets: Sequence[int]
) -> tuple[Lanewise, tuple[int, ...]] | None:
    """The `floordiv` or `mod` by a number of elements at `offsets` from the lanes' indices: the
    first element's, and the differences of the others from it. None where a difference varies by
    lane.
    """
    if number <= 0 or lanes.shared % number:
        return None

    def of(x: int) -> int:
        return x % number if fn == "mod" else x // number

    firsts = tuple(of(own + offsets[0]) for own in lanes.own)
    shared = 0 if fn == "mod" else lanes.shared // number
    differences = tuple(of(lanes.own[0] + x) - firsts[0] for x in offsets)
    for first, own in zip(firsts, lanes.own, strict=True):
        if any(of(own + x) - first != d for x, d in zip(offsets, differences, strict=True)):
            return None
    return Lanewise(firsts, shared), differences
