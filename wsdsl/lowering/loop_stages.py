"""The two stages of a loop with transformed operands (see `schedule_products`), and its masks by
indices, such as `where(index(q) >= index(t), s, -inf)`: tiles that are wholly on one side of the
diagonal need no mask.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set

from wsdsl.ir import ops
from wsdsl.ir.op import Makers, Op, Region, Value, operands, results_of
from wsdsl.ir.rewriter import following, yielded
from wsdsl.ir.types import Tile
from wsdsl.lowering.builder import Builder


@dataclasses.dataclass(frozen=True)
class LoopStages:
    """A loop's body, each op in one of its stages, in their order.

    `first` makes operands, `second` multiplies them and does what follows from it; `scaling` is
    what the first stage makes of the sums before they are added to. `crossing` are tiles that the
    second stage has of the first; `sums` are, by the place of a carried variable that the second
    stage makes, what it reads of it: the variable, or what became of it by scaling.
    """

    loop: ops.ForRange
    first: Region
    scaling: Region
    second: Region
    crossing: tuple[Value, ...]
    sums: dict[int, Value]

    @classmethod
    def of(cls, loop: ops.ForRange, stored: Set[Value]) -> LoopStages | None:
        body, handed = loop.body[:-1], yielded(loop.body)
        products = [op for op in body if isinstance(op, ops.Contract)]
        last = [op for op in products if any(isinstance(v.type, Tile) for v in (op.a, op.b))]
        movable = all(op.movable for op in body)
        behind = following(body, (op.result for op in last))
        if not last or last == products or not movable or behind & ({*products} - {*last}):
            return None
        if any(isinstance(op, (ops.Load, ops.Lookup)) and op.tensor in stored for op in body):
            return None
        second = {*last} | behind
        if not _with_slots(body, second):
            return None
        made_last = {v for op in second for v in results_of(op)}
        places = [n for n, v in enumerate(handed) if v in made_last]
        own = [loop.args[n] for n in places]
        scaling = following(body, own) - second
        made_first = {v for op in body if op not in second for v in results_of(op)}
        scaled = {v for op in scaling for v in results_of(op)}
        if not all(op.pure for op in scaling) or scaled & {*handed}:
            return None
        used = {v for op in second for v in operands(op)}
        sums = dict[int, Value]()
        for n, arg in zip(places, own, strict=True):
            depend = {v for op in following(body, (arg,)) for v in results_of(op)}
            read = [v for v in scaled & used & depend if v.type == arg.type]
            if (arg in used) + len(read) != 1:
                return None
            sums[n] = arg if arg in used else read[0]
        crossing = used & made_first - scaled
        if scaled & used != {*sums.values()} & scaled or any(not v.is_tile for v in crossing):
            return None
        if any(isinstance(op, ops.Contract) and op in scaling for op in body):
            return None
        return cls(
            loop,
            tuple(op for op in body if op not in second and op not in scaling),
            tuple(op for op in body if op in scaling),
            tuple(op for op in body if op in second),
            tuple(v for op in body for v in results_of(op) if v in crossing),
            sums,
        )


def is_scalar(op: Op) -> bool:
    """Whether it makes numbers of numbers."""
    values = (*operands(op), *results_of(op))
    return all(isinstance(v.type, Tile) and not v.type.axes for v in values)


def _with_slots(body: Region, second: set[Op]) -> bool:
    """Move to the second stage the waits for its stages; False if the first reads one of them."""
    for wait in body:
        if not isinstance(wait, ops.ConsumerWait):
            continue
        fields = [op for op in body if isinstance(op, ops.InField) and op.slot == wait.result]
        held = {v for op in fields for v in results_of(op)}
        users = [op for op in body if held & {*operands(op)}]
        if not any(op in second for op in users):
            continue
        if not all(op in second for op in users):
            return False
        given_back = [
            o for o in body if isinstance(o, ops.ConsumerRelease) and o.slot == wait.result
        ]
        second |= {wait, *fields, *given_back}
    return True


ORDERS = ("ge", "gt", "le", "lt")


def is_mask(op: Op, made: Makers) -> bool:
    """Whether it orders indices, or selects by their order: most tiles need neither."""

    def orders(x: Op | None) -> bool:
        if not isinstance(x, ops.Map) or x.fn not in ORDERS:
            return False
        return all(isinstance(made.get(v), ops.Index) for v in x.args)

    return orders(op) or (isinstance(op, ops.Map) and any(orders(made.get(v)) for v in op.args))


class Masks:
    """Of the first stage of a loop: `ops` select by an order of indices. `made`: which op makes
    what of the partition.
    """

    def __init__(self, stages: LoopStages, builder: Builder, made: Makers) -> None:
        self.builder = builder
        self.made = {**made} | {v: op for op in stages.first for v in results_of(op)}
        self.ops = [op for op in stages.first if isinstance(op, ops.Map) and self._order(op)]

    def _order(self, op: ops.Map) -> ops.Map | None:
        """Return the condition of a selection, if it is the order of two indices."""
        test = self.made.get(op.args[0]) if op.fn == "where" and op.args[1].is_tile else None
        if not isinstance(test, ops.Map) or test.fn not in ORDERS:
            return None
        return test if all(map(self._axis, test.args)) else None

    def _axis(self, value: Value) -> ops.AxisAt | None:
        index = self.made.get(value)
        axis = self.made.get(index.axis) if isinstance(index, ops.Index) else None
        return axis if isinstance(axis, ops.AxisAt) else None

    def seen(self, op: Op, swap: Mapping[Value, Value]) -> dict[Value, Value]:
        """Return the result of one of `ops` whose condition holds for all elements."""
        assert isinstance(op, ops.Map)
        return {op.result: swap.get(op.args[1], op.args[1])}

    def tests(self, starts: Mapping[Value, Value]) -> list[Value]:
        """Whether each test holds for all elements of tiles; `starts` has new names for where those
        of this loop begin.
        """
        b, found = self.builder, list[Value]()
        for op in self.ops:
            test = self._order(op)
            assert test is not None
            ends, first = list[Value](), test.fn in ("ge", "gt")
            for value in test.args:
                axis = self._axis(value)
                assert axis is not None
                start = starts.get(axis.start, axis.start)
                ends.append(start if first else b.plus(start, axis.result.as_axis.size - 1, "end"))
                first = not first
            found.append(b.map(test.fn, *ends, wish="visible"))
        return found
