"""The two stages of a loop whose products have computed operands: see `schedule_products`."""

from __future__ import annotations

import dataclasses
from collections.abc import Set

from wsdsl.ir.barrier_ops import ForRange
from wsdsl.ir.op import Op, Region, Value, operands, results_of
from wsdsl.ir.pipeline_ops import AxisAt, FoldColumns
from wsdsl.ir.slot_ops import ConsumerRelease, ConsumerWait, SlotElements, SlotTile, SlotValues
from wsdsl.ir.tile_ops import (
    Bitcast,
    Block,
    Cast,
    Constant,
    Contract,
    DimSize,
    End,
    Full,
    Index,
    Load,
    Lookup,
    Map,
    Reduce,
)
from wsdsl.ir.types import Tile
from wsdsl.ir.walk import following, yielded
from wsdsl.lowering.axes import is_tile

PURE = (Map, Cast, Bitcast, Full, Reduce, FoldColumns, Constant, DimSize)
IN_SLOT = (SlotTile, SlotElements, SlotValues)
MOVABLE = (
    *PURE, *IN_SLOT, AxisAt, Block, ConsumerRelease, ConsumerWait, Contract, End, Index, Load,
    Lookup,
)  # fmt: skip
"""What an iteration may do before the one in front of it is over."""


@dataclasses.dataclass(frozen=True)
class LoopStages:
    """A loop's body, each op in one of its stages, in their order.

    `first` makes operands, `second` multiplies them and does what follows from it; `scaling` is
    what the first stage makes of the sums before they are added to. `crossing` are tiles that the
    second stage has of the first; `sums` are, by the place of a carried variable that the second
    stage makes, what it reads of it: the variable, or what became of it by scaling.
    """

    loop: ForRange
    first: Region
    scaling: Region
    second: Region
    crossing: tuple[Value, ...]
    sums: dict[int, Value]

    @classmethod
    def of(cls, loop: ForRange, stored: Set[Value]) -> LoopStages | None:
        body, handed = loop.body[:-1], yielded(loop.body)
        products = [op for op in body if isinstance(op, Contract)]
        last = [op for op in products if any(isinstance(v.type, Tile) for v in (op.a, op.b))]
        movable = all(isinstance(op, MOVABLE) for op in body)
        behind = following(body, (op.result for op in last))
        if not last or last == products or not movable or behind & ({*products} - {*last}):
            return None
        if any(isinstance(op, (Load, Lookup)) and op.tensor in stored for op in body):
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
        if not all(isinstance(op, PURE) for op in scaling) or scaled & {*handed}:
            return None
        used = {v for op in second for v in operands(op)}
        sums = dict[int, Value]()
        for n, arg in zip(places, own, strict=True):
            read = [v for v in scaled & used if v.type == arg.type and _depends(body, v, arg)]
            if (arg in used) + len(read) != 1:
                return None
            sums[n] = arg if arg in used else read[0]
        crossing = used & made_first - scaled
        if scaled & used != {*sums.values()} & scaled or any(not is_tile(v) for v in crossing):
            return None
        if any(isinstance(op, Contract) and op in scaling for op in body):
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


def _depends(body: Region, value: Value, source: Value) -> bool:
    return any(value in results_of(op) for op in following(body, (source,)))


def _with_slots(body: Region, second: set[Op]) -> bool:
    """Take to the second stage the slots that it reads; False if the first reads one of them."""
    for wait in body:
        if not isinstance(wait, ConsumerWait):
            continue
        fields = [op for op in body if isinstance(op, IN_SLOT) and op.slot == wait.result]
        held = {op.result for op in fields}
        users = [op for op in body if held & {*operands(op)}]
        if not any(op in second for op in users):
            continue
        if not all(op in second for op in users):
            return False
        given_back = [o for o in body if isinstance(o, ConsumerRelease) and o.slot == wait.result]
        second |= {wait, *fields, *given_back}
    return True
