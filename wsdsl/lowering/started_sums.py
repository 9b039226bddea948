"""Whether products were added to a sum at all: where none was, nobody wrote it, and it counts as
zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wsdsl.ir.op import Kernel, Op, Region, Value, once, results_of
from wsdsl.ir.tile_ops import Constant, Contract, DimSize, ForEach, ForTiles, Map
from wsdsl.ir.types import BOOL, I32, DType, Tile
from wsdsl.ir.walk import Namer, yielded
from wsdsl.lowering.decode import decoded
from wsdsl.lowering.product_operands import computed_operands


class StartedSums:
    """`flags` by sum: None where products were added to it in any case."""

    def __init__(self, namer: Namer, sizes: Mapping[str, int]) -> None:
        self.namer, self.sizes = namer, sizes
        self.ops: list[Op] = []
        self.flags: dict[Value, Value | None] = {}

    def behind(self, op: Contract | ForTiles | ForEach, staying: Sequence[int]) -> list[Op]:
        """What computes the flags of the results of a product, or of those of a loop that are sums
        in tensor memory.
        """
        self.ops = []
        if isinstance(op, Contract):
            self.flags[op.result] = None
            return []
        if not staying:
            return []
        runs = self._runs(op)
        for n in staying:
            first = op.init[n]
            inside = self._within(op.body, op.args[n], yielded(op.body)[n])
            own = runs if inside is None else self._map("and", runs, inside)
            known = self.flags.get(first, own)
            if first in self.flags and known is not None:
                known = self._map("or", known, own)
            self.flags[op.result[n]] = known
        return self.ops

    def _within(self, body: Region, arg: Value, last: Value) -> Value | None:
        """Whether an iteration adds to what it carries."""
        found: Value | None = self._constant(False, BOOL)
        value = last
        while value != arg:
            op = next(o for o in body if value in results_of(o))
            if isinstance(op, Contract):
                return None
            assert isinstance(op, (ForTiles, ForEach))
            at = op.result.index(value)
            runs = self._runs(op)
            inside = self._within(op.body, op.args[at], yielded(op.body)[at])
            own = runs if inside is None else self._map("and", runs, inside)
            found, value = self._map("or", found, own), op.init[at]
        return found

    def _runs(self, op: ForTiles | ForEach) -> Value:
        """Whether a loop has an iteration."""
        start, stop = (op.start, op.stop) if isinstance(op, ForTiles) else (None, None)
        return self._map("gt", stop or self._size(op.dim), start or self._constant(0, I32))

    def _map(self, fn: str, *args: Value) -> Value:
        made = Value(self.namer.new("any"), Tile(BOOL))
        self.ops.append(Map(result=made, fn=fn, args=args))
        return made

    def _constant(self, value: int | bool, dtype: DType) -> Value:
        made = Value(self.namer.new("c"), Tile(dtype))
        self.ops.append(Constant(result=made, value=value))
        return made

    def _size(self, dim: str) -> Value:
        if dim in self.sizes:
            return self._constant(self.sizes[dim], I32)
        made = Value(self.namer.new(f"size_{dim}"), Tile(I32))
        self.ops.append(DimSize(result=made, dim=dim))
        return made


@once
def handed_back(kernel: Kernel) -> Mapping[Value, Tile]:
    """As they lie in SMEM: in lines along the axis that is summed over."""
    found = dict[Value, Tile]()
    for op in kernel.of(Contract):
        for value in computed_operands(kernel, op):
            if value not in decoded(kernel).tiles and len(op.summed) == 1:
                kind, (summed,) = value.as_tile, op.summed
                first = next(x for x in kind.axes if x != summed)
                found[value] = Tile(kind.dtype, (first, summed))
    return found
