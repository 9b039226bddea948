"""What a loop masks by where elements are, such as `where(index(q) >= index(t), s, -inf)`: tiles
that lie on one side of it need no mask.
"""

from __future__ import annotations

from collections.abc import Mapping

from wsdsl.ir.op import Op, Value, results_of
from wsdsl.ir.pipeline_ops import AxisAt
from wsdsl.ir.tile_ops import Index, Map
from wsdsl.lowering.axes import is_tile
from wsdsl.lowering.builder import Builder
from wsdsl.lowering.loop_stages import LoopStages

ORDERS = ("ge", "gt", "le", "lt")


def is_mask(op: Op, made: Mapping[Value, Op]) -> bool:
    """Whether it orders indices, or selects by their order: most tiles need neither."""

    def orders(x: Op | None) -> bool:
        if not isinstance(x, Map) or x.fn not in ORDERS:
            return False
        return all(isinstance(made.get(v), Index) for v in x.args)

    return orders(op) or (isinstance(op, Map) and any(orders(made.get(v)) for v in op.args))


class Masks:
    """Of the first stage of a loop: `ops` select by an order of indices. `made`: which op makes
    what of the partition.
    """

    def __init__(self, stages: LoopStages, builder: Builder, made: Mapping[Value, Op]) -> None:
        self.builder = builder
        self.made = {**made} | {v: op for op in stages.first for v in results_of(op)}
        self.ops = [op for op in stages.first if isinstance(op, Map) and self._order(op)]

    def _order(self, op: Map) -> Map | None:
        """What it selects by, if that is the order of two indices."""
        test = self.made.get(op.args[0]) if op.fn == "where" and is_tile(op.args[1]) else None
        if not isinstance(test, Map) or test.fn not in ORDERS:
            return None
        return test if all(map(self._axis, test.args)) else None

    def _axis(self, value: Value) -> AxisAt | None:
        index = self.made.get(value)
        axis = self.made.get(index.axis) if isinstance(index, Index) else None
        return axis if isinstance(axis, AxisAt) else None

    def seen(self, op: Op, swap: Mapping[Value, Value]) -> dict[Value, Value]:
        """What one of `ops` gives where its test holds for all elements."""
        assert isinstance(op, Map)
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
