"""Products under way, as `Products` keeps track of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from wsdsl.ir.op import Value
from wsdsl.ir.slot_ops import TileInShared
from wsdsl.ir.tile_ops import Contract
from wsdsl.lowering.register_tiles import Accumulated, Shape


@dataclass
class Group:
    """Products that are waited for together: the tiles that they add to, their operands in
    registers, and the states of the slots that they read.
    """

    tiles: list[Accumulated] = field(default_factory=list[Accumulated])
    fragments: list[Value] = field(default_factory=list[Value])
    slots: set[Value] = field(default_factory=set[Value])


@dataclass
class Turn:
    """A block of rows of a product, started when the sum of the one `before` is used up: `product`
    is its accumulator, `sum` what was waited for.
    """

    op: Contract
    tiles: dict[Value, TileInShared]
    block: int
    shape: Shape
    before: Turn | None = None
    product: Value | None = None
    sum: Value | None = None
