"""Whether consumers of a chain of products should follow one another once an iteration.

While one has the tensor cores, the others compute what is between their products. If that takes no
longer than the others' products, the tensor cores never wait, and an order of who comes when keeps
it so. If it takes longer they wait in any case, and consumers that wait for their turn lose time.
"""

from __future__ import annotations

import math

from wsdsl.ir.op import Kernel, Op, Region, operands
from wsdsl.ir.tile_ops import Cast, Contract, ForEach, ForTiles, Index, Map, Reduce
from wsdsl.ir.types import Tile
from wsdsl.ir.walk import definers, walk
from wsdsl.ir.wgmma import K_BYTES, ROWS
from wsdsl.lowering.axes import axes_of
from wsdsl.lowering.cooperation import num_cooperating, shared_role
from wsdsl.lowering.loop_stages import following
from wsdsl.lowering.tile_masks import ORDERS
from wsdsl.rates import rates_of
from wsdsl.schedule import Schedule

BY_ALU = ("max", "min", "where", "and", "or", "xor", "not", "eq", "ne", "lt", "le", "gt", "ge")
BY_FMA = ("add", "sub", "mul", "fma", "neg", "abs")


def follow_one_another(kernel: Kernel, schedule: Schedule) -> bool:
    """By cycles of an iteration of each loop with a chain; what a schedule says counts."""
    if schedule.order_barriers is not None:
        return schedule.order_barriers
    others = num_cooperating(schedule) - 1
    if not others or shared_role(kernel, schedule) != "rows":
        return False
    loops = [op for op in walk(kernel.body) if isinstance(op, ForTiles) and _is_chain(op.body)]
    counting = _Cycles(kernel, others + 1)
    sums = [(counting.products(loop.body), counting.between(loop.body)) for loop in loops]
    return bool(sums) and all(between <= others * products for products, between in sums)


def _is_chain(body: Region) -> bool:
    """Whether a product's operand is made of another's results, and no loop is in between."""
    products = [op for op in body if isinstance(op, Contract)]
    loops = any(isinstance(op, (ForTiles, ForEach)) for op in body)
    return not loops and any(following(body, (op.result,)) & {*products} for op in products)


class _Cycles:
    """Of one consumer that has an SM to itself; one step after the other, as they depend."""

    def __init__(self, kernel: Kernel, consumers: int) -> None:
        self.axes, self.rates = axes_of(kernel), rates_of(kernel.target)
        self.consumers, self.made = consumers, definers(kernel.body)

    def _of(self, op: Op) -> list[Op]:
        """What makes its operands."""
        return [self.made[v] for v in operands(op) if v in self.made]

    def _is_mask(self, op: Op) -> bool:
        """Whether it is the order of indices."""
        of = self._of(op)
        orders = isinstance(op, Map) and op.fn in ORDERS
        return orders and len(of) == 2 and all(isinstance(x, Index) for x in of)

    def products(self, body: Region) -> float:
        return sum(self._product(op) for op in body if isinstance(op, Contract))

    def _product(self, op: Contract) -> float:
        kind, operand = op.result.type, op.a.type
        assert isinstance(kind, Tile) and isinstance(operand, Tile)
        sizes = {self.axes[name].role: self.axes[name].size for name in kind.axes}
        blocks = sizes["rows"] / self.consumers / ROWS
        depth = math.prod(self.axes[name].size for name in op.summed)
        steps = depth * operand.dtype.bytes / K_BYTES
        return blocks * steps * self.rates.tensor_cycles(sizes["columns"], operand.dtype.bits)

    def between(self, body: Region) -> float:
        return sum(self._work(op) for op in body)

    def _work(self, op: Op) -> float:
        rates = self.rates
        match op:
            case Map() if self._is_mask(op) or any(map(self._is_mask, self._of(op))):
                return 0.0  # Most tiles have none (`tile_masks.py`).
            case Map(fn=fn, result=tile):
                lanes = rates.alu_lanes if fn in BY_ALU else rates.exp_lanes
                lanes = rates.fma_lanes if fn in BY_FMA else lanes
            case Reduce(fn=fn, x=tile):
                lanes = rates.fma_lanes if fn == "add" else rates.alu_lanes
            case Cast(result=tile):
                lanes = 2 * rates.convert_lanes  # two elements each
            case _:
                return 0.0
        if not isinstance(tile.type, Tile) or not tile.type.axes:
            return 0.0
        return math.prod(self.axes[a].size for a in tile.type.axes) / self.consumers / lanes
