"""What a kernel's products and loads ask for, by tile sizes: a choice asks hundreds of times."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cached_property, lru_cache

from wsdsl.ir.hardware.gmem_limits import COPY_WORD, L2_LINE
from wsdsl.ir.hardware.swizzle import SWIZZLE_SPAN
from wsdsl.ir.hardware.tcgen05_shapes import LANES
from wsdsl.ir.hardware.wgmma_shapes import K_BYTES, MAX_COLUMNS, ROWS, k_step
from wsdsl.ir.op import Kernel, Op, Value, operands, results_of, uses
from wsdsl.ir.ops import Bitcast, Cast, Contract, Index, Load, Lookup, Map
from wsdsl.ir.types import Axis, Role, Sizes, Tile
from wsdsl.lowering.axes import axes_of
from wsdsl.lowering.axis_blocks import block_of
from wsdsl.lowering.cost_model import constants
from wsdsl.lowering.cost_model.sized_kernel import SizedKernel, elements
from wsdsl.lowering.decode import decoded
from wsdsl.lowering.footprint import MAX_LINE
from wsdsl.lowering.multicast_groups import comes_out_even
from wsdsl.lowering.passes.fit_last_tiles import reach_over
from wsdsl.lowering.product_operands import computed_operands, multiplied, operand_lines
from wsdsl.rates import Rates

THREADS_OF_A_ROW = 4
"""Of an operand in registers: each computes by itself what the row's elements have in common."""
SECTOR_BYTES, SEEN = 32, 8
"""What L2 holds; and rows and tiles until offsets begin again, all multiples of 16 bytes."""


class ProductTerm:
    """A product, by the instructions that it is made of."""

    def __init__(self, work: SizedKernel, op: Contract) -> None:
        a, b, kernel = op.a.as_tile, op.b.as_tile, work.kernel
        self.op, self.bits, self.step = op, a.dtype.bits, k_step(a.dtype)
        self.in_registers = bool({*computed_operands(kernel, op)} - {*decoded(kernel).tiles})
        self.axes = tuple(dict.fromkeys((*a.axes, *b.axes)))
        roles = {x: work.roles[x] for x in self.axes if x not in op.summed}
        self.columns = tuple(x for x, role in roles.items() if role == "columns")
        # In tensor memory an instruction has all rows of a tile.
        rows = tuple(x for x, role in roles.items() if role == "rows")
        self.rows = rows if work.target.has_tensor_memory else ()

    def asks(self, tile: Sizes, rates: Rates, group: int = 1) -> tuple[float, float]:
        """Cycles of the tensor cores, and bytes that they read of SMEM, of each CTA of a group."""
        columns, rows = min(MAX_COLUMNS, elements(self.columns, tile)), 0
        if self.rows:
            rows = min(LANES, max(ROWS, elements(self.rows, tile)))
        cycles = rates.tensor_cycles(
            columns, self.bits, a_in_registers=self.in_registers, rows=rows, cta_group=group
        )
        height = rows or ROWS
        read = columns * K_BYTES / group + (0 if self.in_registers else height * K_BYTES)
        number = elements(self.axes, tile) / (height * self.step * columns)
        return number * cycles, number * read


class LoadTerm:
    """An operand that comes through slots, in lines along its last axis, if that is one."""

    def __init__(self, work: SizedKernel, op: Load) -> None:
        self.work, self.op, self.last = work, op, op.last
        self.axes = tuple(axis.name for axis in op.axes)
        self.dtype = op.result.as_tile.dtype
        self.role: Role = work.roles[op.last.name] if op.last else ""
        is_shared = any(work.roles[name] == "columns" for name in self.axes)
        self.is_halved = is_shared and op.result in multiplied(work.kernel)
        """Whether each CTA of a pair loads half of it, where both multiply."""
        self._known: dict[object, tuple[float, float]] = {}

    def bytes(self, tile: Sizes) -> float:
        return elements(self.axes, tile) * self.dtype.bits / 8

    def moved(self, tile: Sizes, together: Sizes) -> tuple[float, float]:
        """Bytes of a tile, and as many as TMA could move in the time. `together`: CTAs by axis that
        load for each other. Kept: tiles that differ along other axes ask alike."""
        asked = tuple([tile[a] for a in self.axes]), tuple(together.items())
        if asked not in self._known:
            moved = self._lines(tile) + self._beyond(tile) * self.dtype.bits / 16
            self._known[asked] = moved, moved * self._crossing(tile, together)
        return self._known[asked]

    def _lines(self, tile: Sizes) -> float:
        """Bytes, where a short line takes as long as one of 128."""
        if self.last is None or self.op.packed:
            # Packed blocks are whole lines, one behind the other.
            return self.bytes(tile)
        lines, length = elements(self.axes[:-1], tile), tile[self.last.name]
        if not self.role:
            return lines * -(-length * self.dtype.bits // (8 * MAX_LINE)) * MAX_LINE
        swizzle, of_lines = operand_lines(length, self.dtype, self.role)
        return lines * of_lines * self.dtype.bits / 8 * MAX_LINE / SWIZZLE_SPAN[swizzle]

    def _beyond(self, tile: Sizes) -> float:
        """Elements beyond the tensor's end: of the last tile, or in the mean of those summed."""
        whole, inside = 1, 1.0
        for axis in self.op.axes:
            each, size = max(1, tile[axis.name]), self.work.size(axis.dim)
            over = reach_over(size, each, self.work.within.get(axis.name, 0))
            tiles = 1 if axis.name in dict(self.work.outer) else max(1, -(-size // each))
            inside *= each - over / tiles
            whole *= tile[axis.name]
        return whole - inside

    def _crossing(self, tile: Sizes, together: Sizes) -> float:
        """How much longer they take, since lines cross those of L2, or threads copy them."""
        work, dtype, last, tensor = self.work, self.dtype, self.last, self.op.tensor
        if tensor.name in work.copied:
            odd = dtype.size(work.size(tensor.as_tensor.dims[-1])) % COPY_WORD
            return (
                constants.COPIED_SINGLY if odd or tensor.name in work.singly else constants.COPIED
            )
        known = last is not None and (isinstance(last.dim, int) or last.dim in work.sizes)
        if last is None or not known or self.op.packed or tensor.name in work.padded:
            return 1.0
        size, apart = work.size(last.dim), tile[last.name]
        line = SWIZZLE_SPAN[operand_lines(apart, dtype, self.role)[0]]
        row, apart = dtype.size(size), dtype.size(apart if apart < size else 0)
        longer = crossing(work.rates, row % L2_LINE, apart % L2_LINE, line, not self.role)
        # Where it is tiles by columns alone that begin amid lines, nothing is gained by multicast.
        copied = math.prod([n for axis, n in together.items() if axis not in self.axes])
        even = comes_out_even(tile[self.axes[0]], copied, self.op.packed)
        if even and (not self.role or row % L2_LINE):
            longer = max(1.0, longer / copied)
        return longer


@lru_cache(maxsize=4096)
def crossing(rates: Rates, row: int, tile: int, line: int, along_contraction: bool) -> float:
    """How much longer lines of `line` bytes take than aligned ones, where rows are `row` bytes
    apart and tiles `tile`: in the mean, or of the tile that takes longest if it has a CTA."""

    def taken(offset: int) -> float:
        if offset % SECTOR_BYTES:
            return rates.l2_split
        return rates.l2_crossing if offset % L2_LINE + line > L2_LINE else 1.0

    rows, tiles = range(SEEN), range(SEEN if tile else 1)
    of_tiles = [sum(taken(i * tile + j * row) for j in rows) / SEEN for i in tiles]
    return sum(of_tiles) / len(of_tiles) if along_contraction else max(of_tiles)


class Runs:
    """Which elements of a kernel's tiles are the same: those that an index of blocks, and what is
    computed of it, has in common along an axis.

        %b: i32[k] = map(fn="floordiv", args=(%k_index, %c64))      64 along k
        %p: i32[k, n] = load(tensor=%P, index=(%b, %n))             64 along k, 1 along n
        %y: bf16[n, k] = map(fn="where", args=(%p, %x, %w))         1 along both
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.found: dict[Value, Sizes] = {}
        """By axis: so many elements that follow each other are the same; 1 where none is known."""
        self.summed = {axis for op in kernel.of(Contract) for axis in op.summed}
        elementwise = Bitcast | Cast | Index | Load | Lookup | Map
        for op in kernel.ops:
            for value in results_of(op):
                if isinstance(value.type, Tile):
                    known = self._common(op, value) if isinstance(op, elementwise) else {}
                    self.found[value] = {a: known.get(a, 1) for a in value.type.axes}

    def _common(self, op: Op, value: Value) -> Sizes:
        """Of all that an op reads, by the axes that this has."""
        if block := block_of(value, self.kernel.definers):
            return dict([block])
        runs = defaultdict[str, int](int)
        for read in operands(op):
            if isinstance(read.type, Axis):
                runs[read.type.name] = 1
            for axis, num in self.found.get(read, {}).items():
                runs[axis] = math.gcd(runs[axis], num)
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
        """Loads that a `where` alone reads, which chooses whole runs: of few rows."""
        used = Counter(uses(self.kernel.body))
        choices = [op.args for op in self.kernel.of(Map) if op.fn == "where"]
        by_rows = [args for args in choices if self.alike(args[0]) > 1]
        chosen = {value for args in by_rows for value in args[1:] if used[value] == 1}
        return {op.result for op in self.kernel.of(Load) if op.result in chosen}

    def bytes_of(self, op: Load, size: Callable[[str | int], int]) -> float:
        """That come from L2, for each element that threads load. `size`: of a dimension."""
        kind, axes = op.result.as_tile, axes_of(self.kernel)
        each = kind.dtype.bits / 8 / self.alike(op.result)
        if op.result not in self.seldom:
            return each
        whole = math.prod(size(axes[axis].dim) for axis in kind.axes)
        held = math.prod(map(size, op.tensor.as_tensor.dims)) * kind.dtype.bits / 8
        return min(each, held / whole)
