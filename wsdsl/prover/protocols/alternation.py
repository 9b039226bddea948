"""The alternation of partitions in ping-pong: each runs some items of the work.

    for_range(index=%work, ..., init=(%zero,), args=(%number,)) {
      %mine: bool = map(fn="eq", args=(%number, %own))
      if(cond=%mine) { ... } { ... }
      yield(values=(%next,))
    }

Where an outer loop walks groups of items (`ragged_items.py`), it carries the number, too.
"""

from collections.abc import Iterator, Set
from typing import Any

from wsdsl.ir import ops
from wsdsl.ir.op import Op, Region
from wsdsl.ir.ops import Partition
from wsdsl.ir.rewriter import walk
from wsdsl.prover.machine.carried_scalars import Formulas
from wsdsl.prover.machine.linear import Sums

Loops = tuple[ops.Loop, ...]


def alternation(
    partition: Partition, uses: Set[Op], sums: Sums, formulas: Formulas
) -> tuple[tuple[Any, ...], int] | None:
    """Return the formulas of the alternation that all of these ops follow, and the number of the
    partition in it. Partitions with the same formulas and other numbers run them one by one.
    """
    for loops, op in _conditional(partition.body, ()):
        if not any(o in uses for o in walk(op.then)):
            continue
        match sums.made.get(op.cond):
            case ops.Map(fn="eq", args=(number, own)) if number in loops[-1].args:
                pass
            case _:
                return None
        mine = [o for o in walk(partition.body) if o in uses]
        here = [o for o in walk(op.then) if o in uses]
        made = formulas.within(loops, (number, *(v for loop in loops for v in loop.bounds)))
        if sums.of(own).terms or len(mine) != len(here) or None in made:
            return None
        return tuple(made), sums.of(own).number
    return None


def _conditional(region: Region, around: Loops) -> Iterator[tuple[Loops, ops.If]]:
    """Conditional regions, with the one or two loops around each."""
    for op in region:
        if isinstance(op, ops.If) and around:
            yield around, op
        elif isinstance(op, ops.Loop) and len(around) < 2:
            yield from _conditional(op.body, (*around, op))
