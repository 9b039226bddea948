"""The alternation of partitions in ping-pong: each takes the items of the work of its turn.

    for_range(index=%work, ..., init=(%zero,), args=(%turn,)) {
      %mine: bool = map(fn="eq", args=(%turn, %own))
      if(cond=%mine) { ... } { ... }
      yield(values=(%next,))
    }

Where an outer loop walks groups of items (`ragged_items.py`), it carries the turn from one to the
next.
"""

from collections.abc import Iterator, Set
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.analysis.tensor_accesses import is_load
from wsdsl.ir.op import Op, Region, Value, attributes_of, operands
from wsdsl.ir.ops import Partition
from wsdsl.ir.rewriter import walk, yielded
from wsdsl.prover.machine.linear import Sums

Loops = tuple[ops.Loop, ...]
Turn = tuple[tuple[Any, ...], int]
"""The formulas of an alternation, and the number of a partition in it."""


def turn_of(partition: Partition, uses: Set[Op], sums: Sums, written: Set[str]) -> Turn | None:
    """Return the turn in which the partition runs all of these ops, if there is one. Partitions
    whose alternations have the same formulas, and other numbers, run them in turn.
    """
    for loops, op in _alternations(partition.body, ()):
        if not any(o in uses for o in walk(op.then)):
            continue
        match sums.made.get(op.cond):
            case ops.Map(fn="eq", args=(turn, own)) if turn in loops[-1].args:
                pass
            case _:
                return None
        mine = [o for o in walk(partition.body) if o in uses]
        here = [o for o in walk(op.then) if o in uses]
        number = sums.of(own)
        if number.terms or len(mine) != len(here):
            return None
        return _Formulas(loops, sums, written).of_all(turn), number.number
    return None


def _alternations(region: Region, around: Loops) -> Iterator[tuple[Loops, ops.If]]:
    """Conditional regions in loops, with the loops, of which there are at most two."""
    for op in region:
        if isinstance(op, ops.If) and around:
            yield around, op
        elif isinstance(op, ops.Loop) and len(around) < 2:
            yield from _alternations(op.body, (*around, op))


class _Formulas:
    """How scalars are made of what is the same in all partitions."""

    def __init__(self, loops: Loops, sums: Sums, written: Set[str]) -> None:
        self.loops, self.sums, self.written = loops, sums, written
        self.carried = list[tuple[int, int]]()
        """Carried values that formulas have, by loop and place."""

    def of_all(self, turn: Value) -> tuple[Any, ...]:
        """The formulas of a turn, of the loops' bounds, and of all that they carry for these."""
        bounds = [v for loop in self.loops for v in loop.bounds]
        found = [self.of(v) for v in (turn, *bounds)]
        for at, place in self.carried:
            loop = self.loops[at]
            found += [self.of(loop.init[place]), self.of(yielded(loop.body)[place])]
        return tuple(found)

    def of(self, value: Value) -> tuple[Any, ...]:
        for at, loop in enumerate(self.loops):
            if value == loop.index:
                return "index", at
            for kind, values in (("argument", loop.args), ("result", loop.result)):
                if value in values:
                    return self._of_carried(kind, at, values.index(value))
        match self.sums.made.get(value):
            case ops.Map(fn=fn, args=args):
                return fn, *map(self.of, args)
            case Op() as op if is_load(op) and not {v.name for v in operands(op)} & self.written:
                return type(op), *attributes_of(op), *map(self.of, operands(op))
            case _:
                return "number", self.sums.of(value)

    def _of_carried(self, kind: str, at: int, place: int) -> tuple[Any, ...]:
        if (at, place) not in self.carried:
            self.carried.append((at, place))
        return kind, at, place
