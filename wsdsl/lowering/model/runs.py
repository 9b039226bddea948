"""Which elements of a tile are the same: those that an index of blocks, and what is computed of it,
has in common along an axis.

    %b: i32[k] = map(fn="floordiv", args=(%k_index, %c64))      64 along k
    %p: i32[k, n] = load(tensor=%P, index=(%b, %n))             64 along k, 1 along n
    %y: bf16[n, k] = map(fn="where", args=(%p, %x, %w))         1 along both
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import cached_property

from wsdsl.ir.op import Kernel, Op, Value, operands, results_of
from wsdsl.ir.tile_ops import Bitcast, Cast, Constant, Contract, Index, Load, Lookup, Map
from wsdsl.ir.types import Axis, Tensor, Tile
from wsdsl.ir.walk import uses
from wsdsl.lowering.axes import axes_of

THREADS_OF_A_ROW = 4
"""Of an operand in registers: each computes by itself what the row's elements have in common."""
KNOWN = Bitcast | Cast | Index | Load | Lookup | Map


class Runs:
    """Of the tiles of a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, made = kernel, kernel.definers
        self.found: dict[Value, Mapping[str, int]] = {}
        """By axis: so many elements that follow each other are the same; 1 where none is known."""
        self.summed = {axis for op in kernel.of(Contract) for axis in op.summed}
        for op in kernel.ops:
            for value in results_of(op):
                if isinstance(value.type, Tile):
                    known = self._common(op, made) if isinstance(op, KNOWN) else {}
                    self.found[value] = {a: known.get(a, 1) for a in value.type.axes}

    def _common(self, op: Op, made: Mapping[Value, Op]) -> Mapping[str, int]:
        """Of all that an op reads, by the axes that this has."""
        runs = defaultdict[str, int](int)
        for value in operands(op):
            if isinstance(value.type, Axis):
                runs[value.type.name] = 1
            for axis, num in self.found.get(value, {}).items():
                runs[axis] = math.gcd(runs[axis], num)
        if isinstance(op, Map) and op.fn == "floordiv" and isinstance(made.get(op.args[0]), Index):
            by = made.get(op.args[1])
            if isinstance(by, Constant) and by.value > 0:
                return {axis: int(by.value) for axis in runs}
        return runs

    def alike(self, value: Value) -> int:
        """Elements that follow each other in a row of an operand, and are the same."""
        return math.prod(n for axis, n in self.found[value].items() if axis in self.summed)

    def computed_at_once(self, value: Value) -> int:
        """Elements of an operand's row, of which a thread computes one; few, if it has no rows."""
        if self.summed >= {*value.as_tile.axes}:
            return 1
        return max(1, self.alike(value) // THREADS_OF_A_ROW)

    @cached_property
    def seldom(self) -> set[Value]:
        """Loads that a `where` alone reads, which chooses whole runs: of what is elsewhere but for
        a few elements, whose tensor has no more than what is loaded.
        """
        used = Counter(uses(self.kernel.body))
        choices = [op.args for op in self.kernel.of(Map) if op.fn == "where"]
        by_rows = [args for args in choices if self.alike(args[0]) > 1]
        chosen = {value for args in by_rows for value in args[1:] if used[value] == 1}
        return {op.result for op in self.kernel.of(Load) if op.result in chosen}

    def bytes_of(self, op: Load, size: Callable[[str | int], int]) -> float:
        """That come from L2, for each element that threads load. `size`: of a dimension."""
        kind, tensor = op.result.as_tile, op.tensor.type
        each = kind.dtype.bits / 8 / self.alike(op.result)
        if op.result not in self.seldom or not isinstance(tensor, Tensor):
            return each
        axes = axes_of(self.kernel)
        whole = math.prod(size(axes[axis].dim) for axis in kind.axes)
        held = math.prod(map(size, tensor.dims)) * kind.dtype.bits / 8
        return min(each, held / whole)
