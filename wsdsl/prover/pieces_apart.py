"""What the pieces of a tile store, all of which run at the same time, is of one of them each.

Either the first piece alone stores, under a test whether the piece's number is less than 1; or a
loop around the store begins with the piece's number, and goes on by how many pieces there are, in
units of which each has elements of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from wsdsl.ir import barrier_ops as b
from wsdsl.ir import tile_ops as t
from wsdsl.ir.op import Kernel, Op, Region, Value, regions
from wsdsl.ir.tensor_accesses import Touch, touches
from wsdsl.prover.errors import Failure, Party
from wsdsl.prover.global_accesses import Along
from wsdsl.prover.global_places import GlobalPlaces
from wsdsl.prover.linear import Linear
from wsdsl.prover.scheduler_terms import scheduler_terms

Strides = tuple[tuple[Value, int], ...]
"""Loops of a piece's own iterations, by their indices, and in what units."""


def check_pieces_apart(kernel: Kernel, work: b.ForRange, agent: int) -> None:
    """Raises Failure where two pieces of a tile, which the loop is over, may store the same."""
    _Pieces(kernel, work, agent).region(work.body, ())


class _Pieces:
    def __init__(self, kernel: Kernel, work: b.ForRange, agent: int) -> None:
        grid = next(op for op in kernel.body if isinstance(op, b.LaunchGrid))
        written = dict(touches(kernel.ops))
        lent = {p.name for p in kernel.params}
        self.stores = {op: x for op, x in written.items() if x.writes and x.tensor in lent}
        self.places = GlobalPlaces(kernel, frozenset(), frozenset())
        given = scheduler_terms(grid, self.places.sums, work.index)
        assert given.part is not None and given.pieces is not None
        self.part, self.pieces, self.agent = given.part, given.pieces, agent

    def region(self, region: Region, strides: Strides) -> None:
        for op in region:
            if op in self.stores and not self._is_apart(op, self.stores[op], strides):
                told = "all pieces of a tile may store these elements"
                hint = "let the first piece store them, or each those of its own iterations"
                raise Failure("split-K", told, Party(self.agent, op), hint=hint)
            if isinstance(op, t.If):
                if not self._is_first(op.cond):
                    self.region(op.then, strides)
                self.region(op.orelse, strides)
            elif isinstance(op, b.ForRange):
                unit = self._unit(op)
                self.region(op.body, (*strides, (op.index, unit)) if unit else strides)
            else:
                for inner in regions(op):
                    self.region(inner, strides)

    def _is_first(self, cond: Value) -> bool:
        """Whether it holds in the first piece alone."""
        match self.places.made.get(cond):
            case t.Map(fn="lt", args=(x, y)):
                sums = self.places.sums
                return sums.of(x) == self.part and sums.of(y) == Linear(1)
            case t.Map(fn="and", args=args):
                return any(map(self._is_first, args))
            case _:
                return False

    def _unit(self, loop: b.ForRange) -> int:
        """Of how many elements a piece has some in turn; 0 if all have the same."""
        start, step = (self.places.sums.of(v) for v in (loop.start, loop.step))
        (_, each), *_ = *self.pieces.terms, ((), 1)
        unit = max((times for _, times in step.terms), default=step.number) // each
        own = self.part.times(unit), self.pieces.times(unit)
        return unit if unit > 0 and (start, step) == own else 0

    def _is_apart(self, op: Op, touch: Touch, strides: Strides) -> bool:
        """Whether its place goes on by as much as it takes, from a piece's turn to the next's."""
        place = self.places.access(op, touch).place
        return any(self._goes_on(along, strides) for along in place.dims)

    def _goes_on(self, along: Along, strides: Strides) -> bool:
        if along.extent is None:
            # Scattered: places of other elements differ.
            within = [x for x in _within(self.places.held_of(along)) if self._turns(x, strides)]
            return bool(within) and all(self._goes_on(x, strides) for x in within)
        return any(turn >= along.extent for turn in self._turns(along, strides))

    def _turns(self, along: Along, strides: Strides) -> list[int]:
        """By how much it goes on, for each of the loops by which it does."""
        meanings = self.places.sums.meanings
        return [
            times * unit
            for term, times in along.start.terms
            for index, unit in strides
            if isinstance(term, int) and meanings[term] == ("value", index)
        ]


def _within(key: Any) -> Iterator[Along]:
    """The lines that an index which is no number is computed from."""
    if isinstance(key, Along):
        yield key
    elif isinstance(key, tuple):
        for part in cast(tuple[Any, ...], key):
            yield from _within(part)
