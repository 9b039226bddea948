"""What crosses from one partition to another: a row of the table that `edges` makes of a kernel.

A row has room for what is not lowered yet. A ring of tile ids is an edge of a scalar, to all
partitions, and a sentinel one of its values; a second loop nest has edges of loops of its own; a
tile that stays in SMEM across loops is consumed in another loop than it is produced in, as Q of
attention is; what two CTAs hold together, or a store clips, is a matter of its layout.
"""

from typing import Literal

from wsdsl.ir.op import Op, Value, results_of
from wsdsl.ir.ops import Load
from wsdsl.ir.types import Tile
from wsdsl.lowering.scale_loads import ScaleLoad
from wsdsl.record import record

Role = Literal["load", "decode", "mma", "compute", "scale", "store"]
"""A partition: who loads by TMA, who makes operands in SMEM, who multiplies, who computes with sums
and what comes out of them, who computes what products are scaled by, who stores."""
ROLES: tuple[Role, ...] = ("load", "decode", "mma", "compute", "scale", "store")

Space = Literal["SMEM", "registers", "TMEM"]
Depth = Literal["stages", "two", "rest", "sums", "scales"]
"""Slots of a ring: as `Schedule.stages` says; two, where one is held around an inner loop; as
many as SMEM has room for beside the others; or, of sums and of scales, as tensor memory has columns
for."""


@record
class Edge:
    """`values` are one tile, that the op `made` makes: loads of a block that are alike give one.
    `layout` is the tile as it lies in its space, or with `box` that box, for threads to read. In
    SMEM it goes through `ring`; the loops are the innermost ones around maker and reader.
    """

    values: tuple[Value, ...]
    made: Op
    producer: Role
    consumers: tuple[Role, ...]
    layout: Tile
    produced_in: Value | None
    consumed_in: Value | None
    space: Space = "SMEM"
    ring: int | None = None
    depth: Depth | None = None
    box: ScaleLoad | None = None
    block: int = 0
    """Of scales: of how many elements each is."""
    wants_tensor: bool = False
    """Of a decoded operand: whether the schedule says that it lies in tensor memory."""

    @property
    def value(self) -> Value:
        return results_of(self.made)[0]

    @property
    def name(self) -> str:
        made = self.made
        return made.tensor.name if isinstance(made, Load) else self.value.name

    @property
    def load(self) -> Load:
        """Of an edge that TMA, or a thread in its place, fills; or that is made of such a one."""
        assert isinstance(self.made, Load)
        return self.made

    def __str__(self) -> str:
        loops = (loop.name if loop else "tile" for loop in (self.produced_in, self.consumed_in))
        through = f", pipeline {self.ring} ({self.depth})" if self.ring is not None else ""
        return (
            f"{self.name}: {self.producer} -> {', '.join(self.consumers)}; {self.space} "
            f"{self.layout}; {' -> '.join(dict.fromkeys(loops))}{through}"
        )
