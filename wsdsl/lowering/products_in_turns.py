"""Products whose row blocks follow one another in one accumulator: see `schedule_products`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from wsdsl.ir.op import Op, Region, operands, regions, results_of
from wsdsl.ir.pipeline_ops import CommitProducts, Materialize
from wsdsl.ir.slot_ops import ConsumerRelease
from wsdsl.ir.tile_ops import Bitcast, Cast, Contract, Full, Map
from wsdsl.ir.types import Tile
from wsdsl.ir.walk import following, makers

ELEMENTWISE = (Bitcast, Cast, Full, Map)


def in_turns(region: Region, blocks: Mapping[Contract, int]) -> Region:
    """The region, with such products where all that becomes of them is elementwise."""
    start = next((i for i, op in enumerate(region) if isinstance(op, Contract)), None)
    if start is None:
        return region
    ends = (i for i in range(start, len(region)) if _ends(region[i]))
    end = next(ends, len(region))
    span, rest = region[start:end], region[end:]
    made = None
    if not (rest and isinstance(rest[0], CommitProducts)):
        made = _together(span, rest, blocks)
    return (*region[:start], *(made or (*span, *in_turns(rest, blocks))))


def _ends(op: Op) -> bool:
    """Whether products before and behind it are not waited for together."""
    return isinstance(op, (CommitProducts, ConsumerRelease))


def _together(span: Region, rest: Region, blocks: Mapping[Contract, int]) -> Region | None:
    """The products of `span` one after another, each with what becomes of it, and the rest; None
    if that can not be.
    """
    group = [op for op in span if isinstance(op, Contract)]
    if sum(blocks.get(op, 1) for op in group) < 2 or not all(map(_is_plain, group)):
        return None
    if len({op.result.type for op in group}) > 1:
        return None
    ops = (*span, *rest)
    behind = [following(ops, (op.result,)) for op in group]
    # What is made of several comes behind the last of them.
    turns = [own.difference(*behind[n + 1 :]) for n, own in enumerate(behind)]
    front = [op for op in span if op not in group and not any(op in own for own in behind)]
    made, placed = [*front], {*front, *group}
    for product, turn in zip(group, turns, strict=True):
        own = {op for op in turn if results_of(op) or regions(op)}
        left = tuple(op for op in ops if op not in placed)
        needed = makers(left, (v for op in own for v in results_of(op)))
        becomes = [op for op in left if op in own or op in needed]
        users = {v for op in ops if op not in own for v in operands(op)}
        totals = tuple(v for op in ops if op in own for v in results_of(op) if v in users)
        elementwise = all(isinstance(op, ELEMENTWISE) for op in becomes)
        if not elementwise or not totals or product.result in users:
            return None
        placed |= {*becomes}
        last = product is group[-1]
        made += [
            dataclasses.replace(product, in_turns=True),
            *becomes,
            Materialize(values=totals, but_last=last, loc=product.loc),
        ]
    return (*made, *(op for op in ops if op not in placed))


def _is_plain(op: Contract) -> bool:
    computed = any(isinstance(v.type, Tile) for v in (op.a, op.b))
    return op.acc is None and not (op.blocks or op.depth or computed)
