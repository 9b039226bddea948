"""Elements that the splits of a tile store, which all run at the same time, are of one split each.

Either the first split alone stores, under a test whether the split's number is less than 1; or a
loop around the store begins with the split's number, and goes on by the number of splits, in
units that each have separate elements.
"""

from collections.abc import Iterator
from typing import Any, cast

from wsdsl.ir import ops
from wsdsl.ir.analysis.tensor_accesses import Touch, touches
from wsdsl.ir.op import Kernel, Op, Region, Value, regions
from wsdsl.ir.ops import grid_of
from wsdsl.prover.failure import SPLIT_K, Failure, Party
from wsdsl.prover.machine.linear import WARPGROUP, Linear
from wsdsl.prover.memory.gmem_accesses import Along
from wsdsl.prover.memory.gmem_regions import GlobalPlaces
from wsdsl.prover.protocols.scheduler_terms import scheduler_terms

Strides = tuple[tuple[Value, int], ...]
"""Loops of a split's own iterations, by their indices, and in what units."""


def check_pieces_apart(kernel: Kernel, work: ops.Loop, agent: int, num_warpgroups: int) -> None:
    """Raises Failure where two splits of a tile of the loop may store the same."""
    _Pieces(kernel, work, agent, num_warpgroups).region(work.body, ())


class _Pieces:
    def __init__(self, kernel: Kernel, work: ops.Loop, agent: int, num_warpgroups: int) -> None:
        grid: Any = grid_of(kernel)
        written = dict(touches(kernel))
        lent = {p.name for p in kernel.params}
        self.stores = {op: x for op, x in written.items() if x.writes and x.tensor in lent}
        self.places = GlobalPlaces(kernel, frozenset(), frozenset())
        given = scheduler_terms(grid, self.places.sums, work.index)
        assert given.part is not None and given.pieces is not None
        self.part, self.pieces, self.tile = given.part, given.pieces, given.slot
        self.agent, self.num_warpgroups = agent, num_warpgroups
        self.own: dict[str, set[tuple[int, bool, int]]] = {}
        """The dimensions of a tensor that separate splits, and elements of a step."""

    def region(self, region: Region, strides: Strides) -> None:
        for op in region:
            if op in self.stores and not self._is_apart(op, self.stores[op], strides):
                told = "all splits of a tile may store these elements"
                hint = "store them from the first split, or in each split those of its iterations"
                raise Failure(SPLIT_K, told, Party(self.agent, op), hint=hint)
            if isinstance(op, ops.If):
                if not self._is_first(op.cond):
                    self.region(op.then, strides)
                self.region(op.orelse, strides)
            elif isinstance(op, ops.ForRange):
                unit = self._unit(op)
                self.region(op.body, (*strides, (op.index, unit)) if unit else strides)
            else:
                for inner in regions(op):
                    self.region(inner, strides)

    def _is_first(self, cond: Value) -> bool:
        """Whether it holds in the first split alone."""
        match self.places.made.get(cond):
            case ops.Map(fn="lt", args=(x, y)):
                sums = self.places.sums
                return sums.of(x) == self.part and sums.of(y) == Linear(1)
            case ops.Map(fn="and", args=args):
                return any(map(self._is_first, args))
            case _:
                return False

    def _unit(self, loop: ops.ForRange) -> int:
        """The number of elements per step of a split; 0 if all have the same."""
        start, step = (self.places.sums.of(v) for v in (loop.start, loop.step))
        (_, each), *_ = *self.pieces.terms, ((), 1)
        unit = max((times for _, times in step.terms), default=step.number) // each
        own = self.part.times(unit), self.pieces.times(unit)
        return unit if unit > 0 and (start, step) == own else 0

    def _is_apart(self, op: Op, touch: Touch, strides: Strides) -> bool:
        """Whether its place lies in the elements of a split's step, as those of all other stores to
        the tensor.
        """
        found = {
            (dim, along.extent is None, turn)
            for dim, along in enumerate(self.places.access(op).place.dims)
            for turn in self._turns(along, strides)
        }
        self.own[touch.tensor] = found & self.own.get(touch.tensor, found)
        return bool(self.own[touch.tensor])

    def _turns(self, along: Along, strides: Strides) -> set[int]:
        """Elements of a split's step that contain it, in each of the loops that have such."""
        if along.extent is None:
            # Scattered: places of other elements differ.
            indices = {self.places.sums.of(index) for index, _ in strides}
            lines = _within(self.places.held_of(along.start))
            within = [x for x in lines if any(_times(x, index) for index in indices)]
            each = [self._turns(x, strides) for x in within]
            return set[int]().union(*each) if all(each) else set()
        turns = (self._turn(along, index, unit) for index, unit in strides)
        return {turn for turn in turns if turn}

    def _turn(self, along: Along, index: Value, unit: int) -> int:
        """0 where it may be others' elements."""
        own = self.places.sums.of(index)
        times = _times(along, own)
        rest = along.start - own.times(times)
        wide = dict(rest.terms).get(WARPGROUP, 0)
        alike = all(term == WARPGROUP or self._is_of_tile(term) for term, _ in rest.terms)
        if along.extent is None or not alike or rest.number < 0 or wide < 0:
            return 0
        behind = rest.number + wide * (self.num_warpgroups - 1) + along.extent
        return times * unit if behind <= times * unit else 0

    def _is_of_tile(self, term: Any) -> bool:
        """Whether it is the same for all splits of a tile."""
        if term in dict(self.tile.terms):
            return True
        match self.places.sums.meanings[term] if isinstance(term, int) else ():
            case ("size", _):
                return True
            case (str(), Linear(), *_) as made:
                sums: Any = made[1:]
                return all(isinstance(x, Linear) and self._are_of_tile(x) for x in sums)
            case _:
                return False

    def _are_of_tile(self, sum: Linear) -> bool:
        return all(self._is_of_tile(term) for term, _ in sum.terms)


def _times(along: Along, index: Linear) -> int:
    """How often that counts the index of a loop, which is one term."""
    ((term, _),) = index.terms
    return dict(along.start.terms).get(term, 0)


def _within(key: Any) -> Iterator[Along]:
    """The lines that an index which is not a number is computed from."""
    if isinstance(key, Along):
        yield key
    elif isinstance(key, tuple):
        for part in cast(tuple[Any, ...], key):
            yield from _within(part)
