"""Equal loads are one."""

from __future__ import annotations

from functools import partial

from wsdsl.ir.op import Op, Region, Value, regions
from wsdsl.ir.tile_ops import Load, Store
from wsdsl.ir.walk import replace_operands, walk, with_regions


def loaded_once(region: Region, swap: dict[Value, Value]) -> Region:
    """Equal loads of a block are one, as far as nothing is stored to the tensor between them."""
    known: dict[tuple[object, ...], Value] = {}
    kept: list[Op] = []
    for op in region:
        op = replace_operands(op, swap, inside=False)
        inner = list(walk((op,))) if regions(op) else [op]
        stored = {o.tensor for o in inner if isinstance(o, Store)}
        known = {key: value for key, value in known.items() if key[0] not in stored}
        if isinstance(op, Load):
            key = (op.tensor, op.index, op.result.type)
            if key in known:
                swap[op.result] = known[key]
                continue
            known[key] = op.result
        kept.append(with_regions(op, partial(loaded_once, swap=swap)))
    return tuple(kept)
