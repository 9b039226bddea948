"""Whether products were added to a sum at all: where none was, nobody wrote it, and it counts as
zeros.
"""

from collections.abc import Mapping, Sequence

from wsdsl.ir.op import Kernel, Op, Region, Value, once, results_of
from wsdsl.ir.ops import Contract, DimLoop, ForTiles
from wsdsl.ir.rewriter import Namer, yielded
from wsdsl.ir.types import Sizes, Tile
from wsdsl.lowering.builder import FLAG, INT, Builder
from wsdsl.lowering.decode import decoded
from wsdsl.lowering.product_operands import computed_operands


class StartedSums:
    """`flags` by sum: None where products were added to it in any case."""

    def __init__(self, namer: Namer, sizes: Sizes) -> None:
        self.builder, self.sizes = Builder(namer), sizes
        self.flags: dict[Value, Value | None] = {}

    def behind(self, op: Contract | DimLoop, staying: Sequence[int]) -> list[Op]:
        """What computes the flags of the results of a product, or of those of a loop that are sums
        in tensor memory.
        """
        if isinstance(op, Contract):
            self.flags[op.result] = None
            return []
        if not staying:
            return []
        with self.builder.region() as ops:
            runs = self._runs(op)
            for n in staying:
                first = op.init[n]
                inside = self._within(op.body, op.args[n], yielded(op.body)[n])
                own = runs if inside is None else self._any("and", runs, inside)
                known = self.flags.get(first, own)
                if first in self.flags and known is not None:
                    known = self._any("or", known, own)
                self.flags[op.result[n]] = known
        return ops

    def _within(self, body: Region, arg: Value, last: Value) -> Value | None:
        """Whether an iteration adds to what it carries."""
        found: Value | None = self.builder.constant(False, FLAG)
        value = last
        while value != arg:
            op = next(o for o in body if value in results_of(o))
            if isinstance(op, Contract):
                return None
            assert isinstance(op, DimLoop)
            at = op.result.index(value)
            runs = self._runs(op)
            inside = self._within(op.body, op.args[at], yielded(op.body)[at])
            own = runs if inside is None else self._any("and", runs, inside)
            found, value = self._any("or", found, own), op.init[at]
        return found

    def _runs(self, op: DimLoop) -> Value:
        """Whether a loop has an iteration."""
        start, stop = (op.start, op.stop) if isinstance(op, ForTiles) else (None, None)
        b, size = self.builder, self.sizes.get(op.dim)
        stop = stop or (b.size(op.dim) if size is None else b.constant(size, INT))
        return self._any("gt", stop, start or b.constant(0, INT))

    def _any(self, fn: str, *args: Value) -> Value:
        return self.builder.map(fn, *args, wish="any")


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
