"""Products in parts: see `schedule_products`. Those that are deeper than sums of fp8 may be, in
pieces of what they sum over; and those whose row blocks follow one another in one accumulator.
"""

import dataclasses
from collections.abc import Mapping

from wsdsl.ir.op import Op, Region, Value, operands, regions, results_of, with_fields
from wsdsl.ir.ops import CommitProducts, ConsumerRelease, Contract, Map, Materialize
from wsdsl.ir.rewriter import definers, following, makers, used_inside
from wsdsl.ir.types import Tile
from wsdsl.lowering.builder import Builder


def promoted_in_pieces(block: Region, depth: dict[Contract, int], every: int, b: Builder) -> Region:
    """The block with each product of more than `every` elements started in pieces, and each piece
    added to f32 by itself. `depth`: the elements that a product of fp8 sums over.
    """
    ops = block
    while depth and (group := _deep(ops, depth, every)):
        ops = _in_pieces(ops, group, depth[group[0]] // every, every, b)
    return ops


def _deep(block: Region, depth: dict[Contract, int], every: int) -> list[Contract]:
    """The first of them, and those that are started in the same group: before a slot goes back."""
    found: list[Contract] = []
    for op in block:
        if isinstance(op, Contract) and op.acc is None and depth.get(op, 0) > every:
            found.append(op)
        elif isinstance(op, ConsumerRelease) and found:
            break
    return found


def _in_pieces(ops: Region, group: list[Contract], num: int, every: int, b: Builder) -> Region:
    at, results = ops.index(group[-1]), {op.result for op in group}
    behind = following(ops[:at], results)
    front = [op for op in ops[:at] if op not in group and op not in behind]
    rest = (*(op for op in ops[:at] if op in behind), *ops[at + 1 :])
    with b.region() as made:
        b.ops += front
        b.loc = group[-1].loc
        pieces: list[list[Value]] = [[] for _ in group]
        for i in range(num):
            for op, own in zip(group, pieces, strict=True):
                own.append(b.value(op.result.name, op.result.type))
                b.add(with_fields(op, result=own[-1], depth=(i * every, (i + 1) * every)))
            b.add(CommitProducts(loc=b.loc))
        before = [_added_to(op.result, rest, results) for op in group]
        totals = [own.pop(0) if t is None else t for t, own in zip(before, pieces, strict=True)]
        while any(pieces):
            for n, own in enumerate(pieces):
                if not own:
                    continue
                piece, whole = own.pop(0), group[n].result
                if before[n] is not None and not own:
                    # The last piece is added where the whole would be.
                    rest = tuple(_with_last(op, whole, (totals[n], piece)) for op in rest)
                    continue
                sum = b.value(totals[n].name, whole.type) if own else whole
                b.add(Map(result=sum, fn="add", args=(totals[n], piece), loc=b.loc))
                b.add(Materialize(values=(sum,), loc=b.loc))
                totals[n] = sum
    return (*made, *rest)


def _added_to(whole: Value, rest: Region, others: set[Value]) -> Value | None:
    """What a product is added to, if that is known by now and all that is done with it."""
    users = [op for op in rest if whole in {*operands(op), *used_inside(op)}]
    match users:
        case [Map(fn="add", args=(a, b))] if a != b:
            before = a if b == whole else b
            known = before not in definers(rest) and before not in others
            return before if known and before.type == whole.type else None
        case _:
            return None


def _with_last(op: Op, whole: Value, args: tuple[Value, Value]) -> Op:
    return with_fields(op, args=args) if isinstance(op, Map) and whole in op.args else op


def in_turns(region: Region, blocks: Mapping[Contract, int]) -> Region:
    """The region, with such products where all that becomes of them is elementwise."""
    start = next((i for i, op in enumerate(region) if isinstance(op, Contract)), None)
    if start is None:
        return region
    # Products before and behind these are not waited for together.
    apart = CommitProducts, ConsumerRelease
    ends = (i for i in range(start, len(region)) if isinstance(region[i], apart))
    end = next(ends, len(region))
    span, rest = region[start:end], region[end:]
    made = None
    if not (rest and isinstance(rest[0], CommitProducts)):
        made = _together(span, rest, blocks)
    return (*region[:start], *(made or (*span, *in_turns(rest, blocks))))


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
        if not all(op.elementwise for op in becomes) or not totals or product.result in users:
            return None
        placed |= {*becomes}
        kept = Materialize(values=totals, but_last=product is group[-1], loc=product.loc)
        made += [dataclasses.replace(product, in_turns=True), *becomes, kept]
    return (*made, *(op for op in ops if op not in placed))


def _is_plain(op: Contract) -> bool:
    computed = any(isinstance(v.type, Tile) for v in (op.a, op.b))
    return op.acc is None and not (op.blocks or op.depth or computed)
